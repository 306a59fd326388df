"use strict";
// Where the viewer reads from: the episodes of the page. And its marks.

// The filter: `parse` makes terms of a line; `matches` says whether an episode has them.
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

// A view: the rows of the index that a query finds, in its order.
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
  return { found: places.length, row: (place) => rows[places[place]] ?? null,
    find: (key) => places.findIndex((at) => keyOf(rows[at]) === key) };
}

function sourceOf(data, marks, changed) {
  const rows = rowsOf(data.index), places = new Map(rows.map((row, place) => [keyOf(row), place]));
  const groups = new Map(Object.entries(data.groups || {})), nameOf = ({ run, step }, group) => `${run || 0}|${step}|${group}`;
  const source = { query: { sort: "telling", descending: true, filter: "" }, onPage: rows.length };
  let view = pageView(data, rows, marks, source.query);

  return Object.assign(source, {
    row: (place) => view.row(place),
    find: (key) => view.find(key),
    found: () => view.found,
    first: () => rows[0],
    rowOf: (key) => rows[places.get(key)] ?? null,
    has: (where) => places.has(keyOf(where)),

    ask(next) {
      source.query = { ...source.query, ...next };
      view = pageView(data, rows, marks, source.query);
      changed(true);
    },

    open: (where) => data.episodes[places.get(keyOf(where))] ?? null, // null where the page does not have it
    groupSize: (episode, group) => groups.get(nameOf(episode, group))?.length ?? 0, // 0: not known
    members: (where, group) => groups.get(nameOf(where, group)) || [],
    sameTask: (current) => rows.filter((one) => one.task === current.task && keyOf(one) !== keyOf(current)),

    nextFailure(place) { // the first failure after a place, and from the start again; null: there is no other
      const many = place < 0 ? view.found : view.found - 1;
      for (let step = 1; step <= many; step += 1) {
        const one = view.row((place + step) % view.found);
        if (one.success === false) return one;
      }
      return null;
    },
  });
}

// Marks and notes of episodes: kept where the browser keeps things, written out as CSV.

function csvCell(value) { // a spreadsheet runs what begins like a formula
  const text = String(value ?? ""), isFormula = /^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text);
  const safe = isFormula ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function marksOf(data, changed) {
  const name = `mas_lab marks: ${(data.runs || []).join(" | ")}`, all = new Map();
  try {
    for (const one of JSON.parse(localStorage.getItem(name)) || []) all.set(keyOf(one), one);
  } catch { /* a sandboxed frame has no storage: marks last as long as the page */ }

  function tell(key) {
    try { localStorage.setItem(name, JSON.stringify([...all.values()])); } catch { /* as above */ }
    changed(key);
  }

  return {
    all: () => [...all.values()],
    has: (key) => all.has(key),
    note: (key) => all.get(key)?.note || "",
    set({ run = 0, step, episode, task, node }, note) { // a note marks, too
      const one = { run, step, episode, task, node, note };
      all.set(keyOf(one), one);
      tell(keyOf(one));
    },
    toggle(where) {
      if (all.delete(keyOf(where))) tell(keyOf(where));
      else this.set(where, "");
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
