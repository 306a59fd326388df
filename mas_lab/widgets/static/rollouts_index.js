"use strict";
// The index: a table of the episodes, sorted by any column, filtered by a line of words.
const COLUMNS = [
  { name: "success", head: "", says: "outcome", width: 44 }, { name: "run", head: "run", width: 42 },
  { name: "step", head: "step", width: 52 }, { name: "task", head: "task", width: 142, text: true },
  { name: "advantage", head: "advantage", width: 112 }, { name: "telling", head: "telling", width: 78 },
];
const HELP = "Words, “quoted words”, agent:NAME, task:TEXT, step:10-20, failed, reinforced (although wrong), lone, invalid, "
  + "truncated, marked. A − before any negates.";

function commonStart(texts) { // what all names begin with, up to a mark between words: shown once is enough
  let start = texts[0] || "";
  for (const text of texts) while (!text.startsWith(start)) start = start.slice(0, -1);
  return texts.length > 1 ? start.replace(/[^-_/:.]+$/, "") : "";
}

function cellsOf({ data, marks, follow }) { // a function from a row and a column to a cell
  const largest = (data.index.advantage || []).reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0);
  const common = commonStart(data.index.task);
  const star = (key) => marks.has(key) && h("span.star", { title: marks.note(key) || "marked" }, "★");
  const nameOf = ({ task, episode }) => (task.startsWith(common) && task.slice(common.length)) || task || episode;
  const copyOf = ({ task, episode }) => task && episode !== task && episode.startsWith(task) && episode.slice(task.length);
  const CELLS = {
    telling: (row) => decimal(row.telling),
    success: (row) => h("span", { class: row.success === false ? "missed" : "quiet", title: outcome(row.success) },
      tick(row.success), star(keyOf(row)) || ""),
    advantage: (row) => h("span.leaning", leaning(row.advantage, largest), h("span", signed(row.advantage))),
    task: (row) => h("a", { href: address(row), title: row.task, tabindex: "-1",
      onclick: (event) => follow(event, row) }, h("span.name", nameOf(row)), copyOf(row) ? h("span.copy", copyOf(row)) : ""),
  };
  return (row, { name, text }) =>
    h("td", { class: text ? "text" : null }, CELLS[name] ? CELLS[name](row) : rounded(row[name]));
}

function indexOf(context) { // `context`: data, source, marks, and what a click does: show, follow
  const { source, data } = context, cell = cellsOf(context);
  const columns = COLUMNS.filter(({ name }) => name in data.index && (name !== "run" || data.runs.length > 1));
  const says = ({ name, says }) => (name === "telling" && data.rule) || (data.told || {})[name] || says || "";
  const lines = new Map(); // each row is made once
  let current = "", timer = 0;

  const search = h("input.filter", { type: "search", placeholder: "Filter episodes", "aria-label": "Filter episodes",
    spellcheck: "false", autocomplete: "off", oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => source.ask({ filter: search.value }), 90);
    } });
  const count = h("p.count.quiet", { role: "status" }), more = h("p.more.quiet");
  const heads = columns.map((column) => h("th", { scope: "col", class: column.text ? "text" : null, title: says(column) },
    button(column.head || "✓", () => sortBy(column.name), { "aria-label": column.head ? null : column.says })));
  const body = h("tbody"), widths = columns.map(() => h("col"));
  columns.forEach(({ name, width }, at) => { widths[at].style.width = name === "task" ? "auto" : `${width}px`; });
  const table = h("table", { "aria-label": "Episodes" }, h("colgroup", widths),
    h("thead", h("tr", heads)), body);
  table.style.minWidth = `${columns.reduce((sum, { width }) => sum + width, 0)}px`;
  const scroller = h("div.rows", table);
  const part = h("nav.index", { "aria-label": "Index of episodes" },
    h("div.tools", search, h("details.help", h("summary", "what the filter takes"), h("p.quiet", HELP)), count, more), scroller);

  function setFilter(text) {
    search.value = text;
    source.ask({ filter: text });
  }

  function sortBy(name) {
    const isText = columns.find((column) => column.name === name).text, { sort, descending } = source.query;
    source.ask({ sort: name, descending: sort === name ? !descending : !isText && name !== "step" && name !== "run" });
  }

  function line(place) {
    const row = source.row(place), key = keyOf(row), onclick = (event) => !event.target.closest("a") && context.show(row);
    if (!lines.has(key)) lines.set(key, h("tr", { onclick }, columns.map((column) => cell(row, column))));
    return lines.get(key);
  }

  function draw() {
    const hadFocus = body.contains(document.activeElement);
    body.replaceChildren(...Array.from({ length: source.found() }, (_, place) => line(place)));
    if (!source.found()) body.append(h("tr", h("td.text", { colspan: columns.length }, "No episode fits. ",
      button("Clear the filter", () => setFilter("")))));
    markCurrent(hadFocus);
  }

  function markCurrent(focus) { // the row of the episode shown; the Tab key reaches its link alone
    body.querySelector("[aria-current]")?.removeAttribute("aria-current");
    body.querySelector("a[tabindex='0']")?.setAttribute("tabindex", "-1");
    const row = place() < 0 ? null : body.rows[place()], link = (row || body).querySelector("a");
    row?.setAttribute("aria-current", "true");
    link?.setAttribute("tabindex", "0");
    if (focus) link?.focus({ preventScroll: true });
    return row;
  }

  function changed(top = true, marked = "") { // another view: sorted or filtered; `marked`: the row to make again
    lines.delete(marked);
    const { sort, descending } = source.query, all = source.found();
    heads.forEach((head, at) => {
      if (columns[at].name === sort) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    if (top) scroller.scrollTop = 0;
    draw();
    const within = source.onPage, away = data.left_out || 0;
    more.textContent = away ? `${rounded(away)} more are not on this page: raise limit_mb, or open one with at=.` : "";
    count.replaceChildren(h("b", all === within ? rounded(all) : `${rounded(all)} of ${rounded(within)}`),
      ` ${within === 1 ? "episode" : "episodes"}`);
  }

  const place = () => source.find(current);

  function showCurrent(key) {
    current = key;
    const row = markCurrent(body.contains(document.activeElement));
    if (!row) return;
    const end = row.offsetTop + row.offsetHeight - scroller.clientHeight;
    scroller.scrollTop = Math.max(end, Math.min(scroller.scrollTop, row.offsetTop - table.tHead.offsetHeight));
  }

  return { part, changed, showCurrent, place, focus: () => { search.focus(); search.select(); },
    status: () => (place() >= 0 ? `episode ${rounded(place() + 1)} of ${rounded(source.found())}`
      : "an episode outside of the filter") };
}
