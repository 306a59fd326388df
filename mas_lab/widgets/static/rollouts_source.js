"use strict";
// Where the viewer reads from: the episodes of the page and, once a kernel has answered, the whole run. And its marks.

// The filter: `parse` makes terms of a line; `matches` says whether an episode has them. A kernel takes the same terms.
const PART = /(-?)(?:([a-zA-Z]+):)?(?:"([^"]*)"?|(\S+))/gu;
const FLAGS = ["failed", "succeeded", "invalid", "truncated", "lone", "reinforced", "marked"];

function termOf([, minus, name, quoted, plain]) {
  const value = (quoted ?? plain).toLowerCase(), field = name && name.toLowerCase(), negated = minus === "-";
  if (!name && quoted === undefined && FLAGS.includes(value)) return { kind: value, negated };
  if (field === "agent" || field === "task") return { kind: field, value, negated };
  const range = /^(\d+)(?:-(\d+))?$/.exec(value);
  if ((field === "step" || field === "run") && range)
    return { kind: field, from: Number(range[1]), to: Number(range[2] ?? range[1]), negated };
  return { kind: "text", value: name ? `${name}:${value}`.toLowerCase() : value, negated };
}

const parse = (line) => [...line.matchAll(PART)].map(termOf).filter((one) => one.value !== "");

// `row`: the columns of the index; `text`: task, episode, heard and said, in lower case; `marked`: has it a mark?
const HAS = {
  failed: ({ row }) => row.success === false,
  succeeded: ({ row }) => row.success === true,
  invalid: ({ row }) => row.invalid > 0,
  truncated: ({ row }) => row.truncated > 0,
  lone: ({ row }) => row.lone > 0,
  reinforced: ({ row }) => row.reinforced > 0,
  marked: ({ marked }) => marked(),
  agent: ({ row }, { value }) => row.agents.toLowerCase().split(", ").includes(value),
  task: ({ row }, { value }) => row.task.toLowerCase().includes(value),
  step: ({ row }, { from, to }) => from <= row.step && row.step <= to,
  run: ({ row }, { from, to }) => from <= (row.run || 0) && (row.run || 0) <= to,
  text: ({ text }, { value }) => text().includes(value),
};
const matches = (terms, found) => terms.every((one) => HAS[one.kind](found, one) !== one.negated);

// A table by columns as rows.
function rowsOf(columns) {
  const names = Object.keys(columns), length = names.length ? columns[names[0]].length : 0;
  return Array.from({ length }, (_, at) => Object.fromEntries(names.map((name) => [name, columns[name][at]])));
}

// A view: the rows of the index that a query finds, in its order. This one is of the page's own episodes.
function pageView(data, rows, marks, { sort, descending, filter }) {
  const terms = parse(filter), way = descending ? -1 : 1;
  const textOf = ({ name, task, nodes }) =>
    [task, name, ...nodes.flatMap((node) => [node.heard, ...node.candidates.map((one) => one.said)])].join("\0").toLowerCase();
  const value = (row) => (sort === "advantage" && known(row[sort]) ? Math.abs(row[sort]) : row[sort]);
  const found = [...rows.keys()].filter((at) =>
    matches(terms, { row: rows[at], text: () => textOf(data.episodes[at]), marked: () => marks.has(keyOf(rows[at])) }));
  const places = found.sort((one, other) => {
    const [a, b] = [value(rows[one]), value(rows[other])];
    if (!known(a) || !known(b)) return known(b) - known(a) || one - other; // what is not known stands last
    return way * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b) || one - other;
  });
  return { found: places.length, row: (place) => rows[places[place]] ?? null, read: async (place) => rows[places[place]],
    find: (key) => places.findIndex((at) => keyOf(rows[at]) === key) };
}

// The same of the whole run, whose kernel is asked for a window of rows at a time.
const WINDOW = 100;

async function kernelView(ask, { sort, descending, filter }, changed) {
  const windows = new Map(), view = { found: 0, total: 0, row, find, read };

  function windowAt(from) {
    if (!windows.has(from)) {
      const question = ask({ ask: "index", sort, descending, filter: parse(filter), from, count: WINDOW });
      windows.set(from, question.then((reply) => {
        Object.assign(view, { found: reply.found, total: reply.total });
        windows.set(from, rowsOf(reply.rows));
        return windows.get(from);
      }));
      windows.get(from).catch(() => windows.delete(from));
    }
    return windows.get(from);
  }

  async function read(place) {
    return (await windowAt(place - (place % WINDOW)))[place % WINDOW];
  }

  function row(place) { // null: not read yet; it will be, and `changed` is called
    const from = place - (place % WINDOW), rows = windows.get(from);
    if (!rows) windowAt(from).then(changed, () => {});
    return Array.isArray(rows) ? (rows[place % WINDOW] ?? null) : null;
  }

  function find(key) {
    for (const [from, rows] of windows) {
      const at = Array.isArray(rows) ? rows.findIndex((one) => keyOf(one) === key) : -1;
      if (at >= 0) return from + at;
    }
    return -1;
  }

  await windowAt(0);
  return view;
}

// A live kernel behind the page: asked by messages to the page around it, which an invisible widget relays.
function kernelOf(greeted, signal) {
  const waiting = new Map();
  let number = 0;

  const ask = (question) => new Promise((done, failed) => {
    const id = (number += 1), late = setTimeout(() => settled(id).failed(new Error("the kernel gave no answer")), 20000);
    waiting.set(id, { done, failed, late });
    parent.postMessage({ id, ...question }, "*");
  });

  function settled(id) {
    const question = waiting.get(id);
    waiting.delete(id);
    clearTimeout(question?.late);
    return question;
  }

  function received({ source, data }) {
    if (source !== parent || data === null || typeof data !== "object") return;
    if (data.hello) greeted(data);
    const question = settled(data.id);
    if (data.error) question?.failed(new Error(String(data.error)));
    else question?.done(data);
  }

  if (parent !== window) {
    addEventListener("message", received, { signal });
    parent.postMessage({ ask: "hello" }, "*");
  }
  return ask;
}

function sourceOf(data, marks, changed, signal) {
  const rows = rowsOf(data.index), places = new Map(rows.map((row, place) => [keyOf(row), place]));
  const episodes = new Map(), groups = new Map(Object.entries(data.groups || {})), waits = 400;
  const source = { query: { sort: "telling", descending: true, filter: "" }, total: data.total ?? rows.length,
    onPage: rows.length,
    complete: false, live: false, note: "" };
  let view = pageView(data, rows, marks, source.query);

  const kernel = kernelOf((hello) => {
    source.live = true;
    source.total = hello.total ?? source.total;
    request(20 * waits);
  }, signal);

  function show(next, isComplete, note, top) {
    [view, source.complete, source.note] = [next, isComplete, note];
    changed(top);
  }

  // The kernel's view replaces the page's own when its first window is here; while a cell runs, the page's own stands.
  async function request(patience) {
    const { query } = source, isNew = () => query === source.query;
    const fallBack = (why) => isNew() && show(pageView(data, rows, marks, query), false,
      `${why}: these are the page's own episodes`, true);
    const late = setTimeout(fallBack, patience, "the kernel is busy");
    try {
      const next = await kernelView(kernel, query, () => changed(false));
      if (isNew()) show(next, true, "", patience === waits);
    } catch (trouble) {
      fallBack(trouble.message);
    }
    clearTimeout(late);
  }

  const groupName = ({ run, step }, group) => `${run || 0}|${step}|${group}`;
  const hasOwn = (where) => places.has(keyOf(where));
  return Object.assign(source, {
    row: (place) => view.row(place),
    find: (key) => view.find(key),
    found: () => view.found,
    first: () => rows[0],
    rowOf: (key) => view.row(view.find(key)) ?? rows[places.get(key)] ?? null,
    isHere: (where) => hasOwn(where) || episodes.has(keyOf(where)),
    has: (where) => source.live || hasOwn(where),

    ask(next) {
      source.query = { ...source.query, ...next };
      if (source.live) request(waits);
      else show(pageView(data, rows, marks, source.query), false, "", true);
    },

    async open(where) { // the episode's data, or null where nobody has it
      const key = keyOf(where), { run = 0, step, episode } = where;
      if (hasOwn(where)) return data.episodes[places.get(key)];
      if (!episodes.has(key) && source.live) {
        const reply = await kernel({ ask: "episode", run, step, episode });
        for (const [name, members] of Object.entries(reply.groups || {})) groups.set(name, members);
        episodes.set(key, reply.episode);
      }
      return episodes.get(key) ?? null;
    },

    groupSize: (episode, group) => groups.get(groupName(episode, group))?.length ?? 0, // 0: not known

    async members({ run = 0, step }, group) {
      const name = groupName({ run, step }, group);
      if (!groups.has(name) && group && source.live) groups.set(name,
        (await kernel({ ask: "group", run, step, group })).members);
      return groups.get(name) || [];
    },

    async sameTask(current) { // rows of the same task, elsewhere
      const filter = [{ kind: "task", value: current.task.toLowerCase(), negated: false }];
      const question = { ask: "index", sort: "step", descending: false, filter, from: 0, count: WINDOW };
      const all = source.live ? rowsOf((await kernel(question)).rows) : rows;
      return all.filter((one) => one.task === current.task && keyOf(one) !== keyOf(current));
    },

    async nextFailure(place) { // the first failure after a place, and from the start again; null: there is no other
      const many = Math.min(place < 0 ? view.found : view.found - 1, 40 * WINDOW);
      for (let step = 1; step <= many; step += 1) {
        const one = await view.read((place + step) % view.found);
        if (one.success === false) return one;
      }
      return null;
    },

    tellMarks: (all) => source.live && parent.postMessage({ ask: "marks", marks: all }, "*"),
  });
}

// Marks and notes of episodes: kept where the browser keeps things, told to the kernel, written out as CSV.

function csvCell(value) { // a spreadsheet runs what begins like a formula
  const text = String(value ?? ""), isFormula = /^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text);
  const safe = isFormula ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function marksOf(data, changed) {
  const name = `mas_lab marks: ${(data.runs || []).join(" | ")}`, all = new Map();
  const dropped = new Map(); // a mark taken away by mistake comes back with its note
  try {
    for (const one of JSON.parse(localStorage.getItem(name)) || []) all.set(keyOf(one), one);
  } catch { /* a sandboxed frame has no storage: marks last as long as the page */ }

  function tell() {
    try { localStorage.setItem(name, JSON.stringify([...all.values()])); } catch { /* as above */ }
    changed();
  }

  return {
    all: () => [...all.values()],
    has: (key) => all.has(key),
    note: (key) => all.get(key)?.note || "",
    set({ run = 0, step, episode, task, node }, note) { // a note marks, too
      all.set(keyOf({ run, step, episode }), { run, step, episode, task, node, note });
      tell();
    },
    toggle(where) {
      const key = keyOf(where), before = all.get(key);
      if (!before) return this.set(where, dropped.get(key) || "");
      dropped.set(key, before.note);
      all.delete(key);
      return tell();
    },
    save() {
      const columns = [...((data.runs || []).length > 1 ? ["run"] : []), "step", "episode", "task", "node", "note"];
      const lines = [columns, ...this.all().map((one) => columns.map((column) => csvCell(one[column])))];
      const link = h("a", { download: "marks.csv" });
      link.href = URL.createObjectURL(new Blob([lines.map((cells) => `${cells.join(",")}\r\n`).join("")],
        { type: "text/csv" }));
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    },
  };
}
