"use strict";
// The nodes of an episode: what the agent heard, the state, its candidates.
((viewer) => {
  const { candidate, cardOf, cardsOf, counted, element, swatch } = viewer;
  const SHORT = 600;

  const picture = (svg) =>
    `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg.toWellFormed ? svg.toWellFormed() : svg)}`;

  function heard(node) {
    const lines = element("pre", { class: "said heard" }, node.heard || "(nothing)");
    return element(
      "details",
      { class: "hears", open: node.heard.length <= SHORT },
      element(
        "summary",
        {},
        "heard",
        element("span", { class: "quiet" }, ` ${counted(node.heard.length, "character")}`),
      ),
      lines,
    );
  }

  function state(node) {
    if (!node.state) return null;
    const told = new DOMParser()
      .parseFromString(node.state, "image/svg+xml")
      .documentElement.getAttribute("aria-label");
    return element("img", {
      class: "state",
      src: picture(node.state),
      alt: `The state before ${node.agent}'s turn ${node.turn}, environment step ${node.depth}. ${told || ""}`.trim(),
    });
  }

  function nodeOf(context, episode, node, place) {
    const cards = cardsOf(node);
    const title = element(
      "h3",
      {},
      swatch(context.colors[node.agent]),
      node.agent,
      element("span", { class: "quiet" }, ` turn ${node.turn}`),
    );
    const count =
      counted(node.candidates.length, "candidate") +
      (cards.length < node.candidates.length ? `, ${cards.length} different` : "");
    const made = element(
      "article",
      { class: "node", tabindex: "-1", "data-place": place },
      element(
        "div",
        { class: "title" },
        title,
        element("span", { class: "quiet" }, `environment step ${node.depth}, ${count}`),
      ),
      element("div", { class: node.state ? "given drawn" : "given" }, heard(node), state(node)),
      ...cards.map((card) => candidate(context, episode, node, place, card)),
    );
    made.style.setProperty("--agent", context.colors[node.agent] || "var(--quiet)");
    return made;
  }

  function markSpot(pane, episode, { place, candidate: index }) {
    for (const one of pane.querySelectorAll(".now")) if (!one.closest("svg")) one.classList.remove("now");
    const article = pane.querySelector(`article[data-place="${place}"]`);
    const card = cardOf(episode.nodes[place], index),
      shown = article.querySelector(`.candidate[data-index="${card.all[0].index}"]`);
    article.classList.add("now");
    shown.classList.add("now");
    return [article, shown];
  }

  Object.assign(viewer, { nodeOf, markSpot });
})(MasLabRollouts);
