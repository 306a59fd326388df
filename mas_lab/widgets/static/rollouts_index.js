"use strict";
// The index: a table of which only the rows in view exist, sorted by any column, filtered by a line of words.
((viewer) => {
  const { element, button, swatch, known, whole, decimal, signed, tick, outcome, keyOf, bar, counted, FLAGS } = viewer;
  const SPARE = 12;
  const COLUMNS = [
    { name: "success", head: "", says: "outcome", width: 32 },
    { name: "run", head: "run", width: 42 },
    { name: "step", head: "step", width: 46 },
    { name: "task", head: "task", width: 150, text: true },
    { name: "return", head: "return", width: 58 },
    { name: "advantage", head: "advantage", width: 106 },
    { name: "surprise", head: "surprise", width: 66 },
    { name: "tokens", head: "tokens", width: 58 },
    { name: "truncated", head: "cut off", width: 56 },
    { name: "invalid", head: "invalid", width: 56 },
    { name: "lone", head: "lone", width: 46 },
    { name: "agents", head: "agents", width: 78, text: true },
    { name: "rows", head: "rows", width: 48 },
    { name: "telling", head: "telling", width: 58 },
    { name: "episode", head: "episode", width: 190, text: true },
  ];
  const CHIPS = FLAGS.filter((flag) => flag !== "succeeded");
  const HELP = "words, “quoted words”, agent:NAME, task:TEXT, step:10-20; a − before any negates";

  function commonStart(texts) { // what all names begin with, up to a mark between words: shown once is enough
    let start = texts[0] || "";
    for (const text of texts) while (!text.startsWith(start)) start = start.slice(0, -1);
    return texts.length > 1 ? start.replace(/[^-_/:.]+$/, "") : "";
  }

  function indexOf(context) {
    const { source, data, marks } = context;
    const columns = COLUMNS.filter(({ name }) => name in data.index && (name !== "run" || data.runs.length > 1));
    const told = (column) => (column.name === "telling" && data.rule) || (data.told || {})[column.name] || column.says || "";
    const largest = (data.index.advantage || []).reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0);
    const common = commonStart(data.index.task);
    let current = "", drawn = "";

    const search = element("input", { type: "search", class: "filter", placeholder: "Filter episodes", "aria-label": "Filter episodes",
      "aria-describedby": "", spellcheck: "false", autocomplete: "off", oninput: typed });
    search.removeAttribute("aria-describedby");
    const chips = CHIPS.map((flag) => button(flag, () => chip(flag), { class: "chip", "aria-pressed": "false" }));
    const sorts = element("select", { "aria-label": "Sort by", onchange: () => sortBy(sorts.value, true) },
      ...columns.map(({ name, head, says }) => element("option", { value: name }, name === "telling" ? "what tells most" : head || says)));
    const way = button("↓", () => sortBy(source.query.sort, !source.query.descending), { class: "plain way" });
    const count = element("p", { class: "count quiet", role: "status" });
    const more = element("p", { class: "more quiet" });
    const heads = columns.map((column) => element("th", { scope: "col", class: column.text ? "text" : null, title: told(column) },
      button(column.head || "✓", () => sortBy(column.name), { "aria-label": column.head ? null : column.says })));
    const body = element("tbody", {}), above = spacer(), below = spacer();
    const table = element("table", { "aria-label": "Episodes" },
      element("colgroup", {}, ...columns.map(({ name, width }) => { const col = element("col", {}); col.style.width = name === "task" ? "auto" : `${width}px`; return col; })),
      element("thead", {}, element("tr", { "aria-rowindex": "1" }, ...heads)), above, body, below);
    table.style.minWidth = `${columns.reduce((sum, { width }) => sum + width, 0)}px`;
    const scroller = element("div", { class: "rows", onscroll: () => requestAnimationFrame(() => draw(false)) }, table);
    const part = element("nav", { class: "index", "aria-label": "Index of episodes" },
      element("div", { class: "tools" }, search, element("div", { class: "chips" }, ...chips),
        element("p", { class: "help quiet" }, HELP),
        element("div", { class: "sorting" }, count, element("label", { class: "quiet" }, "by ", sorts), way), more),
      scroller);
    let timer = 0;

    function spacer() {
      return element("tbody", { "aria-hidden": "true", class: "space" }, element("tr", {}, element("td", { colspan: columns.length })));
    }

    function typed() {
      clearTimeout(timer);
      timer = setTimeout(() => source.ask({ filter: search.value }), 90);
    }

    function setFilter(text) {
      search.value = text;
      clearTimeout(timer);
      source.ask({ filter: text });
    }

    function chip(flag) {
      const words = search.value.split(/\s+/).filter(Boolean), has = words.includes(flag);
      setFilter((has ? words.filter((word) => word !== flag) : [...words, flag]).join(" "));
    }

    function sortBy(name, descending) {
      const again = source.query.sort === name, text = columns.find((column) => column.name === name)?.text;
      source.ask({ sort: name, descending: descending ?? (again ? !source.query.descending : !text && name !== "step" && name !== "run") });
    }

    const height = () => parseFloat(getComputedStyle(part).getPropertyValue("--row")) || 30;

    const CELLS = {
      success: (row) => element("span", { class: row.success === false ? "missed" : "quiet", title: outcome(row.success) },
        tick(row.success), marks.has(keyOf(row)) ? element("span", { class: "star", title: marks.note(keyOf(row)) || "marked" }, "★") : ""),
      return: (row) => decimal(row.return, 2),
      surprise: (row) => decimal(row.surprise, 2),
      telling: (row) => decimal(row.telling, 2),
      advantage: (row) => element("span", { class: "leaning" }, bar(row.advantage, largest), element("span", {}, signed(row.advantage, 2))),
      agents: (row) => element("span", { class: "swatches", title: row.agents }, element("span", { class: "unseen" }, row.agents),
        ...row.agents.split(", ").map((agent) => swatch(data.agents[agent]))),
      episode: (row) => element("span", { title: row.episode }, row.episode),
    };
    const nameOf = (row) => (row.task.startsWith(common) && row.task !== common ? row.task.slice(common.length) : row.task) || row.episode;
    const copyOf = ({ task, episode }) => // of several episodes of a task, which
      (task && episode !== task && episode.startsWith(task) ? element("span", { class: "copy" }, episode.slice(task.length)) : "");
    const sparse = (value) => (value ? whole(value) : element("span", { class: "none" }, "·"));
    for (const name of ["truncated", "invalid", "lone"]) CELLS[name] = (row) => sparse(row[name]);

    function cell(row, { name, text }, place) {
      if (name === "task") {
        const now = keyOf(row) === current;
        return element("td", { class: "text" }, element("a", { href: context.address(row), title: row.task, tabindex: now ? "0" : "-1",
          "data-place": place, onclick: (event) => context.follow(event, row) }, element("span", { class: "name" }, nameOf(row)), copyOf(row)));
      }
      return element("td", { class: text ? "text" : null }, CELLS[name] ? CELLS[name](row) : known(row[name]) ? whole(row[name]) : "");
    }

    function line(place) {
      const row = source.row(place), now = row && keyOf(row) === current;
      const made = element("tr", { "aria-rowindex": place + 2, "aria-current": now ? "true" : null, class: row ? null : "unread",
        onclick: (event) => row && !event.target.closest("a") && context.show(row) });
      if (row) made.append(...columns.map((column) => cell(row, column, place)));
      else made.append(element("td", { colspan: columns.length }, "…"));
      return made;
    }

    function draw(anew) {
      const row = height(), all = source.found();
      const first = Math.max(0, Math.floor(scroller.scrollTop / row) - SPARE);
      const last = Math.min(all, Math.ceil((scroller.scrollTop + scroller.clientHeight) / row) + SPARE);
      const now = `${first} ${last}`;
      if (!anew && now === drawn) return;
      drawn = now;
      const focus = body.contains(document.activeElement) ? document.activeElement.dataset.place : null;
      above.firstChild.firstChild.style.height = `${first * row}px`;
      below.firstChild.firstChild.style.height = `${(all - last) * row}px`;
      body.replaceChildren(...Array.from({ length: last - first }, (_, at) => line(first + at)));
      if (!body.querySelector("a[tabindex='0']")) body.querySelector("a")?.setAttribute("tabindex", "0");
      if (focus !== null) body.querySelector(`a[data-place="${focus}"]`)?.focus({ preventScroll: true });
    }

    function counts() {
      const all = source.found(), within = source.whole ? source.total : source.onPage, away = source.whole ? 0 : data.left_out || 0;
      more.textContent = away ? `${whole(away)} more are not on this page: open it from the run in a notebook.` : "";
      count.replaceChildren(element("b", {}, all === within ? whole(all) : `${whole(all)} of ${whole(within)}`), ` ${within === 1 ? "episode" : "episodes"}`,
        source.note ? element("span", { class: "trouble" }, ` ${source.note}`) : "");
      table.setAttribute("aria-rowcount", all + 1);
      if (!all) body.append(element("tr", {}, element("td", { colspan: columns.length, class: "text" }, "No episode fits. ", button("Clear the filter", () => setFilter("")))));
    }

    function changed(top = true) { // another view: sorted, filtered, or read on
      const { sort, descending } = source.query;
      heads.forEach((head, at) => {
        if (columns[at].name === sort) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
      sorts.value = sort;
      way.textContent = descending ? "↓" : "↑";
      way.setAttribute("aria-label", descending ? "Descending; turn it round" : "Ascending; turn it round");
      const words = search.value.split(/\s+/);
      chips.forEach((one, at) => one.setAttribute("aria-pressed", String(words.includes(CHIPS[at]))));
      if (top) scroller.scrollTop = 0;
      draw(true);
      counts();
    }

    function showCurrent(key, focus = false) { // the row of the episode shown, in view
      current = key;
      const place = source.find(key), row = height(), head = table.tHead.offsetHeight;
      if (place >= 0) {
        const top = place * row;
        if (top < scroller.scrollTop) scroller.scrollTop = top;
        else if (top + row > scroller.scrollTop + scroller.clientHeight - head) scroller.scrollTop = top + row + head - scroller.clientHeight + 2;
      }
      draw(true);
      if (focus || body.contains(document.activeElement)) body.querySelector("tr[aria-current] a")?.focus({ preventScroll: true });
    }

    const place = () => source.find(current);
    new ResizeObserver(() => draw(false)).observe(scroller);
    return { part, changed, showCurrent, place, setFilter, redraw: () => draw(true), focus: () => { search.focus(); search.select(); },
      told: () => `${place() >= 0 ? `episode ${whole(place() + 1)} of ${counted(source.found(), "episode").replace(/ episodes?$/, "")}` : "an episode outside of the filter"}` };
  }

  Object.assign(viewer, { indexOf });
})(MasLabRollouts);
