"use strict";
// One episode as a column: its outcome and name, its overview, its nodes. Two of them stand side by side.
((viewer) => {
  const {
    element,
    decimal,
    known,
    outcome,
    tick,
    counted,
    overview,
    nodeOf,
    advantageOf,
    scrollable,
    showSpot,
    markSpot,
    cardOf,
  } = viewer;

  function headOf(context, episode, row, extra) {
    const runs = context.data.runs || [];
    const run = episode.run || 0,
      told = new Set(runs).size < runs.length ? `${run}: ${runs[run]}` : runs[run];
    const facts = [
      runs.length > 1 ? told : "",
      `step ${episode.step}`,
      row && known(row.return) ? `return ${decimal(row.return, 2)}` : "",
      row ? counted(row.rows, "row") : "",
      row ? counted(row.tokens, "token") : "",
      episode.name === episode.task ? "" : `episode ${episode.name}`,
    ].filter(Boolean);
    return element(
      "div",
      { class: "named" },
      element(
        "h2",
        {},
        element(
          "span",
          { class: episode.success === false ? "outcome missed" : "outcome", title: outcome(episode.success) },
          tick(episode.success),
          element("span", { class: "unseen" }, ` ${outcome(episode.success)}: `),
        ),
        episode.task || episode.name,
      ),
      element("p", { class: "quiet" }, facts.join(" · ")),
      extra || "",
    );
  }

  function paneOf(context, episode, row, extra) {
    const part = { episode };
    const largest = Math.max(
      0,
      ...episode.nodes.flatMap((node) => node.candidates.map((one) => Math.abs(advantageOf(one) || 0))),
    );
    const choose = (place, candidate) => own.goto(place, candidate, true);
    const own = { ...context, largest: () => largest, goto: (...spot) => context.gotoIn(part, ...spot) };
    const tree = overview(episode, context.data.agents, choose);
    const nodes = element(
      "div",
      { class: "nodes" },
      ...episode.nodes.map((node, place) => nodeOf(own, episode, node, place)),
    );
    part.tree = tree;
    part.nodes = nodes;
    part.part = element("div", { class: "column" }, headOf(context, episode, row, extra), tree, nodes);
    part.settle = () => scrollable(part.part);
    part.mark = (spot) => {
      showSpot(tree, spot.place, cardOf(episode.nodes[spot.place], spot.candidate));
      return markSpot(nodes, episode, spot);
    };
    return part;
  }

  // Brings an element into view in whatever scrolls here: the pane itself, or, on a small screen, the page.
  function reveal(pane, target, under, whole = target) {
    const box = target.getBoundingClientRect(),
      end = whole.getBoundingClientRect().bottom,
      frame = pane.getBoundingClientRect();
    if (pane.scrollHeight > pane.clientHeight + 1 && getComputedStyle(pane).overflowY !== "visible") {
      const top = frame.top + under;
      if (box.top < top || end > frame.bottom) pane.scrollTop += box.top - top - 10;
    } else if (box.top < under || end > innerHeight) target.scrollIntoView({ block: "start" });
  }

  Object.assign(viewer, { paneOf, reveal });
})(MasLabRollouts);
