"use strict";
// The index's columns, and what stands in each of a row's cells.
((viewer) => {
  const { bar, decimal, element, keyOf, known, outcome, signed, swatch, tick, whole } = viewer;
  const COLUMNS = [
    { name: "success", head: "", says: "outcome", width: 40 },
    { name: "run", head: "run", width: 42 },
    { name: "step", head: "step", width: 46 },
    { name: "task", head: "task", width: 142, text: true },
    { name: "return", head: "return", width: 58 },
    { name: "advantage", head: "advantage", width: 106 },
    { name: "surprise", head: "surprise", width: 66 },
    { name: "tokens", head: "tokens", width: 58 },
    { name: "truncated", head: "cut off", width: 56 },
    { name: "invalid", head: "invalid", width: 56 },
    { name: "lone", head: "lone", width: 46 },
    { name: "telling", head: "telling", width: 58 },
    { name: "agents", head: "agents", width: 78, text: true },
    { name: "rows", head: "rows", width: 48 },
    { name: "episode", head: "episode", width: 190, text: true },
  ];

  function commonStart(texts) {
    // what all names begin with, up to a mark between words: shown once is enough
    let start = texts[0] || "";
    for (const text of texts) while (!text.startsWith(start)) start = start.slice(0, -1);
    return texts.length > 1 ? start.replace(/[^-_/:.]+$/, "") : "";
  }

  const columnsOf = (data) =>
    COLUMNS.filter(({ name }) => name in data.index && (name !== "run" || data.runs.length > 1));

  function cellsOf(context) {
    // a function from a row and a column to a cell
    const { data, marks } = context;
    const largest = (data.index.advantage || []).reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0);
    const common = commonStart(data.index.task);

    const CELLS = {
      success: (row) =>
        element(
          "span",
          { class: row.success === false ? "missed" : "quiet", title: outcome(row.success) },
          tick(row.success),
          marks.has(keyOf(row))
            ? element("span", { class: "star", title: marks.note(keyOf(row)) || "marked" }, "★")
            : "",
        ),
      return: (row) => decimal(row.return, 2),
      surprise: (row) => decimal(row.surprise, 2),
      telling: (row) => decimal(row.telling, 2),
      advantage: (row) =>
        element(
          "span",
          { class: "leaning" },
          bar(row.advantage, largest),
          element("span", {}, signed(row.advantage, 2)),
        ),
      agents: (row) =>
        element(
          "span",
          { class: "swatches", title: row.agents },
          element("span", { class: "unseen" }, row.agents),
          ...row.agents.split(", ").map((agent) => swatch(data.agents[agent])),
        ),
      episode: (row) => element("span", { title: row.episode }, row.episode),
    };
    const nameOf = (row) =>
      (row.task.startsWith(common) && row.task !== common ? row.task.slice(common.length) : row.task) || row.episode;
    const copyOf = ({ task, episode }) =>
      // of several episodes of a task, which
      task && episode !== task && episode.startsWith(task)
        ? element("span", { class: "copy" }, episode.slice(task.length))
        : "";
    const sparse = (value) => (value ? whole(value) : element("span", { class: "none" }, "·"));
    for (const name of ["truncated", "invalid", "lone"]) CELLS[name] = (row) => sparse(row[name]);

    return (row, { name, text }, place, now) => {
      if (name === "task") {
        return element(
          "td",
          { class: "text" },
          element(
            "a",
            {
              href: context.address(row),
              title: row.task,
              tabindex: now ? "0" : "-1",
              "data-place": place,
              onclick: (event) => context.follow(event, row),
            },
            element("span", { class: "name" }, nameOf(row)),
            copyOf(row),
          ),
        );
      }
      return element(
        "td",
        { class: text ? "text" : null },
        CELLS[name] ? CELLS[name](row) : known(row[name]) ? whole(row[name]) : "",
      );
    };
  }

  Object.assign(viewer, { columnsOf, cellsOf });
})(MasLabRollouts);
