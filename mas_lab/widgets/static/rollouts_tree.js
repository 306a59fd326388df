"use strict";
// An episode at a glance: a column per step of the environment, a circle per candidate, the kept way a thick line.
((viewer) => {
  const { drawn, element, cardsOf, follows, signed, counted } = viewer;
  const SIZE = { dot: 8, row: 21, head: 17, gap: 12, edge: 12 };

  const READS =
    "Circle: a candidate, its number how many are alike; thick: kept; orange: advantage above 0, blue: below.";

  function advantageOf(candidate) {
    const own = candidate.numbers.advantage;
    if (typeof own === "number") return own;
    const each = (candidate.shades && candidate.shades.advantage) || [];
    return each.length ? each.reduce((sum, one) => sum + one, 0) / each.length : null;
  }

  function meanOf(card) {
    const all = card.all.map(advantageOf).filter((one) => one !== null);
    return all.length ? all.reduce((sum, one) => sum + one, 0) / all.length : null;
  }

  const short = (name, most = 11) => (name.length > most ? name.slice(0, most - 1) + "…" : name);
  const label = (node) => `${short(node.agent)} ${node.turn}`;

  function placed({ nodes }) {
    // x by depth, one below another where several share it
    const slots = nodes.map((node, at) => nodes.slice(0, at).filter((one) => one.node === node.node).length);
    const column = (at) => nodes[at].depth * 1000 + slots[at]; // who acts at the same time stands side by side
    const depths = [...new Set(nodes.map((_, at) => column(at)))].sort((one, other) => one - other);
    const heights = new Map(),
      most = Math.max(...nodes.map((node) => label(node).length));
    const step = Math.max(62, Math.min(104, most * 6.6 + 14));
    const blocks = nodes.map((node, place) => {
      const at = column(place),
        y = heights.get(at) || 0,
        cards = cardsOf(node);
      heights.set(at, y + SIZE.head + cards.length * SIZE.row + SIZE.gap);
      return { node, place, cards, x: SIZE.edge + depths.indexOf(at) * step, y };
    });
    const height = Math.max(...heights.values()) - SIZE.gap + 4;
    return { blocks, step, width: SIZE.edge * 2 + depths.length * step, height };
  }

  const dotAt = (block, card) => [
    block.x + SIZE.dot,
    block.y + SIZE.head + block.cards.indexOf(card) * SIZE.row + SIZE.dot + 2,
  ];

  function edges({ blocks }) {
    const kept = new Set(blocks.filter(({ node }) => !node.parent).map(({ node }) => node.node)),
      lines = [];
    const leads = blocks.filter(
      ({ node }, at) => !blocks.slice(0, at).some((before) => before.node.node === node.node),
    ); // one of who acts together
    for (const block of leads) {
      const all = block.node.candidates,
        every = all.length > 1 && all.every((one) => one.kept); // no way was chosen
      for (const card of block.cards) {
        for (const next of leads.filter(({ node }) => card.all.some((one) => follows(node.parent, one.action)))) {
          const thick = card.kept && !every && kept.has(block.node.node);
          if (thick) kept.add(next.node.node);
          const [x, y] = dotAt(block, card),
            [to, down] = dotAt(next, next.cards[0]),
            half = (x + to) / 2;
          const way = `M${x + SIZE.dot},${y} C${half},${y} ${half},${down} ${to - SIZE.dot},${down}`;
          lines.push(drawn("path", { d: way, class: thick ? "way kept" : "way" }));
        }
      }
    }
    return lines;
  }

  function dot(block, card, most, color, choose) {
    const [x, y] = dotAt(block, card),
      shown = card.all[0],
      advantage = meanOf(card);
    const made = drawn("g", {
      class: card.kept ? "dot kept" : "dot",
      "data-index": shown.index,
      onclick: (event) => {
        event.stopPropagation();
        choose(block.place, shown.index);
      },
    });
    const told = [
      `candidate ${shown.index}`,
      card.kept ? "kept" : "",
      advantage === null ? "" : `advantage ${signed(advantage)}`,
      card.all.length > 1 ? `${card.all.length} alike` : "",
    ]
      .filter(Boolean)
      .join(", ");
    const ring = drawn("circle", { cx: x, cy: y, r: SIZE.dot, class: "ring" });
    const fill = drawn("circle", { cx: x, cy: y, r: SIZE.dot, class: advantage < 0 ? "fill below" : "fill above" });
    fill.style.setProperty("--part", most && advantage ? Math.abs(advantage) / most : 0);
    ring.style.stroke = color;
    made.append(drawn("title", {}, told), drawn("circle", { cx: x, cy: y, r: SIZE.dot, class: "ground" }), fill, ring);
    if (card.all.length > 1) made.append(drawn("text", { x, y: y + 4, class: "many" }, String(card.all.length)));
    return made;
  }

  function overview(episode, colors, choose) {
    const plan = placed(episode);
    const all = episode.nodes.flatMap((node) => node.candidates.map((one) => Math.abs(advantageOf(one) || 0)));
    const most = Math.max(0, ...all);
    const svg = drawn("svg", {
      width: plan.width,
      height: plan.height,
      role: "group",
      "aria-label": "Overview of the episode",
      class: "overview",
    });
    svg.append(...edges(plan));
    for (const block of plan.blocks) {
      const { node, place, cards } = block;
      const told =
        `${node.agent}, turn ${node.turn}, ${counted(node.candidates.length, "candidate")}` +
        (cards.length < node.candidates.length ? `, ${cards.length} different` : "");
      const press = (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        choose(place, cards[0].all[0].index);
      };
      const made = drawn("g", {
        class: "block",
        role: "button",
        tabindex: "-1",
        "aria-label": told,
        "data-place": place,
        onclick: () => choose(place, cards[0].all[0].index),
        onkeydown: press,
      });
      made.append(
        drawn("rect", {
          x: block.x - 5,
          y: block.y,
          width: plan.step - 4,
          height: SIZE.head + cards.length * SIZE.row,
          rx: 4,
          class: "hit",
        }),
        drawn("title", {}, told),
        drawn("text", { x: block.x, y: block.y + 12, class: "label" }, label(node)),
        ...cards.map((card) => dot(block, card, most, colors[node.agent] || "var(--quiet)", choose)),
      );
      svg.append(made);
    }
    return element("div", { class: "tree" }, svg, element("p", { class: "quiet reads" }, READS));
  }

  function showSpot(tree, place, card) {
    // marks where one is, and brings it into view sideways
    for (const block of tree.querySelectorAll(".block")) {
      const now = Number(block.dataset.place) === place;
      block.setAttribute("tabindex", now ? "0" : "-1");
      if (now) block.setAttribute("aria-current", "true");
      else block.removeAttribute("aria-current");
      for (const one of block.querySelectorAll(".dot"))
        one.classList.toggle("now", now && card.all.some(({ index }) => String(index) === one.dataset.index));
      if (now) {
        const box = block.querySelector(".hit"),
          x = Number(box.getAttribute("x")),
          width = Number(box.getAttribute("width"));
        if (x < tree.scrollLeft) tree.scrollLeft = x - 8;
        else if (x + width > tree.scrollLeft + tree.clientWidth) tree.scrollLeft = x + width - tree.clientWidth + 8;
      }
    }
  }

  Object.assign(viewer, { overview, showSpot, advantageOf, meanOf });
})(MasLabRollouts);
