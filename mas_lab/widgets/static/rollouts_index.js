"use strict";
// The index: a table of which only the rows in view exist, sorted by any column, filtered by a line of words.
((viewer) => {
  const { FLAGS, button, cellsOf, columnsOf, element, keyOf, whole } = viewer;
  const SPARE = 12;
  const CHIPS = FLAGS.filter((flag) => flag !== "succeeded");
  const HELP = "words, “quoted words”, agent:NAME, task:TEXT, step:10-20; a − before any negates";

  function indexOf(context) {
    const { source, data } = context;
    const columns = columnsOf(data),
      cell = cellsOf(context);
    const told = (column) =>
      (column.name === "telling" && data.rule) || (data.told || {})[column.name] || column.says || "";
    let current = "",
      drawn = "";

    const search = element("input", {
      type: "search",
      class: "filter",
      placeholder: "Filter episodes",
      "aria-label": "Filter episodes",
      spellcheck: "false",
      autocomplete: "off",
      oninput: typed,
    });
    const chips = CHIPS.map((flag) => button(flag, () => chip(flag), { class: "chip", "aria-pressed": "false" }));
    const sorts = element(
      "select",
      { "aria-label": "Sort by", onchange: () => sortBy(sorts.value, true) },
      ...columns.map(({ name, head, says }) =>
        element("option", { value: name }, name === "telling" ? "what tells most" : head || says),
      ),
    );
    const way = button("↓", () => sortBy(source.query.sort, !source.query.descending), { class: "plain way" });
    const count = element("p", { class: "count quiet", role: "status" });
    const more = element("p", { class: "more quiet" });
    const heads = columns.map((column) =>
      element(
        "th",
        { scope: "col", class: column.text ? "text" : null, title: told(column) },
        button(column.head || "✓", () => sortBy(column.name), { "aria-label": column.head ? null : column.says }),
      ),
    );
    const body = element("tbody", {}),
      above = spacer(),
      below = spacer();
    const table = element(
      "table",
      { "aria-label": "Episodes" },
      element(
        "colgroup",
        {},
        ...columns.map(({ name, width }) => {
          const col = element("col", {});
          col.style.width = name === "task" ? "auto" : `${width}px`;
          return col;
        }),
      ),
      element("thead", {}, element("tr", { "aria-rowindex": "1" }, ...heads)),
      above,
      body,
      below,
    );
    table.style.minWidth = `${columns.reduce((sum, { width }) => sum + width, 0)}px`;
    const scroller = element("div", { class: "rows", onscroll: () => requestAnimationFrame(() => draw(false)) }, table);
    const part = element(
      "nav",
      { class: "index", "aria-label": "Index of episodes" },
      element(
        "div",
        { class: "tools" },
        search,
        element("div", { class: "chips" }, ...chips),
        element("p", { class: "help quiet" }, HELP),
        element("div", { class: "sorting" }, count, element("label", { class: "quiet" }, "by ", sorts), way),
        more,
      ),
      scroller,
    );
    let timer = 0;

    function spacer() {
      return element(
        "tbody",
        { "aria-hidden": "true", class: "space" },
        element("tr", {}, element("td", { colspan: columns.length })),
      );
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
      const words = search.value.split(/\s+/).filter(Boolean),
        has = words.includes(flag);
      setFilter((has ? words.filter((word) => word !== flag) : [...words, flag]).join(" "));
    }

    function sortBy(name, descending) {
      const again = source.query.sort === name,
        text = columns.find((column) => column.name === name)?.text;
      source.ask({
        sort: name,
        descending: descending ?? (again ? !source.query.descending : !text && name !== "step" && name !== "run"),
      });
    }

    const height = () => parseFloat(getComputedStyle(part).getPropertyValue("--row")) || 30;

    function line(place) {
      const row = source.row(place),
        now = row && keyOf(row) === current;
      const made = element("tr", {
        "aria-rowindex": place + 2,
        "aria-current": now ? "true" : null,
        class: row ? null : "unread",
        onclick: (event) => row && !event.target.closest("a") && context.show(row),
      });
      if (row) made.append(...columns.map((column) => cell(row, column, place, keyOf(row) === current)));
      else made.append(element("td", { colspan: columns.length }, "…"));
      return made;
    }

    function draw(anew) {
      const row = height(),
        all = source.found();
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
      const all = source.found(),
        within = source.whole ? source.total : source.onPage,
        away = source.whole ? 0 : data.left_out || 0;
      more.textContent = away ? `${whole(away)} more are not on this page: open it from the run in a notebook.` : "";
      count.replaceChildren(
        element("b", {}, all === within ? whole(all) : `${whole(all)} of ${whole(within)}`),
        ` ${within === 1 ? "episode" : "episodes"}`,
        source.note ? element("span", { class: "trouble" }, ` ${source.note}`) : "",
      );
      table.setAttribute("aria-rowcount", all + 1);
      if (!all)
        body.append(
          element(
            "tr",
            {},
            element(
              "td",
              { colspan: columns.length, class: "text" },
              "No episode fits. ",
              button("Clear the filter", () => setFilter("")),
            ),
          ),
        );
    }

    function changed(top = true) {
      // another view: sorted, filtered, or read on
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

    function showCurrent(key, focus = false) {
      // the row of the episode shown, in view
      current = key;
      const place = source.find(key),
        row = height(),
        head = table.tHead.offsetHeight;
      if (place >= 0) {
        const top = place * row;
        if (top < scroller.scrollTop) scroller.scrollTop = top;
        else if (top + row > scroller.scrollTop + scroller.clientHeight - head)
          scroller.scrollTop = top + row + head - scroller.clientHeight + 2;
      }
      draw(true);
      if (focus || body.contains(document.activeElement))
        body.querySelector("tr[aria-current] a")?.focus({ preventScroll: true });
    }

    const place = () => source.find(current);
    new ResizeObserver(() => draw(false)).observe(scroller);
    return {
      part,
      changed,
      showCurrent,
      place,
      setFilter,
      redraw: () => draw(true),
      focus: () => {
        search.focus();
        search.select();
      },
      told: () =>
        place() >= 0 ? `episode ${whole(place() + 1)} of ${whole(source.found())}` : "an episode outside of the filter",
    };
  }

  Object.assign(viewer, { indexOf });
})(MasLabRollouts);
