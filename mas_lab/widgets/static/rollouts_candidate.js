"use strict";
// One candidate of a node: what was said, what it earned, its tokens, and whom it was compared with.
((viewer) => {
  const {
    advantageOf,
    bar,
    button,
    cardsOf,
    counted,
    decimal,
    element,
    follows,
    isMember,
    known,
    meanOf,
    numbers,
    readable,
    signed,
    strip,
    swatch,
  } = viewer;

  const number = (value) => (typeof value === "number" ? decimal(value, 4).replace(/\.?0+$/, "") : String(value));
  const earned = (advantage) => (typeof advantage === "number" ? signed(advantage, 2) : "");

  function tokens(shown, made, shade, most) {
    const region = element("div", { class: "tokens" });
    const unfold = button(counted(shown.tokens.length, "token"), () => toggle(region.hidden), {
      class: "plain unfold",
      "aria-expanded": "false",
    });
    function toggle(open) {
      if (open && !region.children.length) region.append(strip(shown, shade(), most()), numbers(shown));
      region.hidden = !open;
      unfold.setAttribute("aria-expanded", String(open));
      made.classList.toggle("instead", open && readable(shown));
      if (open) scrollable(made);
    }
    toggle(Boolean(shown.tell));
    return [unfold, region];
  }

  function members(context, episode, node, shown) {
    // who was compared with it, folded
    if (!shown.group) return null;
    const size = shown.compared ?? context.groupSize(episode, shown.group),
      others = size - 1;
    const who = others > 0 ? counted(others, "other") : others === 0 ? "nobody" : "its group";
    const made = element(
      "details",
      { class: "group" },
      element("summary", { title: `group ${shown.group}` }, `compared with ${who}`),
    );
    made.addEventListener("toggle", async () => {
      if (!made.open || made.children.length > 1) return;
      const all = await context.members(episode, shown.group);
      if (made.children.length > 1) return;
      if (!all.length) return made.append(element("p", { class: "quiet" }, "Its members are not on this page."));
      const most = Math.max(0, ...all.map(({ advantage }) => Math.abs(advantage) || 0));
      made.append(
        element("p", { class: "quiet" }, `Group ${shown.group}, ${told(all.length, size)}:`),
        element("ul", { class: "members" }, ...all.map((one) => member(context, episode, node, shown, one, most))),
      );
    });
    return made;
  }

  const told = (listed, size) =>
    listed < size ? `of its ${size} rows the ${listed} with the largest advantages` : "the advantage of each";

  function member(context, episode, node, shown, one, most) {
    const here = isMember(one, episode, node, shown.index),
      where = { run: episode.run, step: episode.step, ...one };
    const at = one.episode === episode.name ? `node ${one.node.replace(`${one.episode}/`, "")}` : one.episode;
    const name = `${at}, candidate ${one.candidate}`;
    const link = context.has(where)
      ? element(
          "a",
          {
            href: context.address(where),
            "aria-current": here ? "true" : null,
            onclick: (event) => context.follow(event, where),
          },
          name,
        )
      : element("span", { class: "quiet", title: "not on this page" }, name);
    return element(
      "li",
      { class: here ? "here" : null },
      element("span", { class: "value" }, earned(one.advantage)),
      bar(typeof one.advantage === "number" ? one.advantage : 0, most),
      element("span", { class: "who" }, swatch(context.colors[one.agent]), link),
      element("span", { class: "text" }, one.said),
    );
  }

  // Alike in words, not in what they earned.
  const unlike = ({ all }) => all.some((one) => advantageOf(one) !== advantageOf(all[0]));

  // The advantage stands at the top, and a temperature of 1 says nothing.
  const shownBelow = ([name, value]) =>
    name === "advantage" ? typeof value !== "number" : name !== "temperature" || value !== 1;

  function candidate(context, episode, node, place, card) {
    const shown = card.all[0],
      advantage = meanOf(card),
      most = context.largest(episode),
      chosen = node.candidates.some((one) => !one.kept);
    const kept = card.kept && chosen; // where all were kept, none was chosen
    const made = element("div", {
      class: kept ? "candidate kept" : "candidate",
      role: "group",
      "data-index": shown.index,
      "aria-label": `candidate ${shown.index}${kept ? ", kept" : ""}`,
    });
    const flags = [shown.valid ? "" : "not understood", shown.finish === "length" ? "cut off" : ""].filter(Boolean);
    const alike =
      card.all.length > 1
        ? element(
            "span",
            {
              class: "alike",
              title: `candidates ${card.all.map((one) => one.index).join(", ")} are word for word the same`,
            },
            `×${card.all.length}`,
          )
        : null;
    const [unfold, region] = shown.tokens.length
      ? tokens(shown, made, context.shade, () => context.most())
      : [null, null];
    const head = element(
      "header",
      {},
      element("strong", {}, kept ? "✓ kept" : `candidate ${shown.index}`),
      alike,
      kept ? element("span", { class: "quiet" }, `candidate ${shown.index}`) : null,
      ...flags.map((flag) => element("span", { class: "flag" }, flag)),
      element(
        "span",
        { class: "earned" },
        unfold,
        ...(known(advantage)
          ? [
              element("span", { class: "quiet" }, unlike(card) ? "mean advantage" : "advantage"),
              element("b", {}, signed(advantage, 2)),
              bar(advantage, most),
            ]
          : []),
      ),
    );
    const facts = Object.entries(shown.numbers)
      .filter(shownBelow)
      .map(([name, value]) =>
        element("span", { class: "fact" }, `${name.replaceAll("_", " ")} `, element("b", {}, number(value))),
      );
    const said = element("pre", { class: "said" }, shown.said || "(nothing)");
    const next = card.all
      .map((one) => episode.nodes.findIndex((after) => follows(after.parent, one.action)))
      .find((at) => at >= 0);
    const follow =
      next === undefined
        ? null
        : button("what followed →", () => context.goto(next, cardsOf(episode.nodes[next])[0].all[0].index, true), {
            class: "plain",
          });
    made.append(head, said, ...[region].filter(Boolean), element("div", { class: "facts" }, ...facts, follow));
    if (unlike(card))
      made.append(
        element(
          "div",
          { class: "facts" },
          ...card.all.map((one) =>
            element(
              "span",
              { class: "fact" },
              `candidate ${one.index} `,
              element("b", {}, signed(advantageOf(one), 2)),
            ),
          ),
        ),
      );
    if (shown.info)
      made.append(
        element(
          "details",
          { class: "told" },
          element("summary", {}, "the world told"),
          element("pre", { class: "said" }, shown.info),
        ),
      );
    const compared = members(context, episode, node, shown);
    if (compared) made.append(compared);
    made.addEventListener("click", (event) => {
      if (!event.target.closest("button, a, summary, pre, input, .table") && !String(getSelection()))
        context.goto(place, shown.index, false);
    });
    return made;
  }

  function scrollable(pane) {
    // what scrolls by itself can be reached by keyboard
    const all = [...pane.querySelectorAll("pre.said, .strip")].filter((one) => !one.hasAttribute("tabindex"));
    for (const one of all.filter((text) => text.scrollHeight > text.clientHeight + 1)) {
      one.setAttribute("tabindex", "0");
      if (one.classList.contains("strip")) continue;
      one.setAttribute("role", "group");
      one.setAttribute("aria-label", one.classList.contains("heard") ? "what was heard" : "what was said");
    }
  }

  Object.assign(viewer, { candidate, scrollable });
})(MasLabRollouts);
