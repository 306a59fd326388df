"use strict";
// What can be pressed above an episode: the four moves with where one is in each, shades, the list of keys.
((viewer) => {
  const { element, button } = viewer;
  const MOVES = [
    { name: "path", short: "path", says: "along the path", keys: ["←", "→"] },
    { name: "agent", short: "agent's turns", says: "this agent's turns", keys: ["T", "t"] },
    { name: "candidate", short: "candidates", says: "candidates of the node", keys: ["C", "c"] },
    { name: "group", short: "group", says: "members of the comparison group", keys: ["G", "g"] },
  ];
  const KEYS = [
    ["/", "filter"],
    ["j  k", "next, previous episode of the index"],
    ["f", "next failure"],
    ["→  ←", "along the path, and back"],
    ["t  T", "the same agent's next, previous turn"],
    ["c  C", "next, previous candidate"],
    ["g  G", "next, previous member of the comparison group; it may lie in another episode"],
    ["m", "mark, or take the mark away"],
    ["n", "write a note"],
    ["s", "side by side: the same task at another step, or in the other run"],
    ["Esc", "leave what is open"],
    ["?", "this list"],
  ];

  function movesOf(move) {
    // {part, set(name, now, count, before, after)}
    const parts = new Map(
      MOVES.map(({ name, short, says, keys }) => {
        const where = element("span", { class: "where" }, "");
        const back = button("‹", () => move(name, -1), {
          "aria-label": `previous: ${says} (key ${keys[0]})`,
          title: `key ${keys[0]}`,
        });
        const on = button("›", () => move(name, 1), {
          "aria-label": `next: ${says} (key ${keys[1]})`,
          title: `key ${keys[1]}`,
        });
        const part = element(
          "div",
          { class: "move", role: "group", "aria-label": says, title: says },
          back,
          element("span", { class: "what" }, element("span", { class: "quiet" }, short), where),
          on,
        );
        return [name, { part, where, back, on }];
      }),
    );
    function set(name, { now, count }, before, after) {
      const { where, back, on } = parts.get(name);
      where.textContent = now ? `${now} of ${count}` : "–";
      back.setAttribute("aria-disabled", String(!before));
      on.setAttribute("aria-disabled", String(!after));
    }
    return { part: element("div", { class: "moves" }, ...[...parts.values()].map(({ part }) => part)), set };
  }

  function shadesOf(names, chosen, onchange, legend) {
    const select = element(
      "select",
      { "aria-label": "Shade tokens by", onchange: () => onchange(select.value) },
      ...names.map((name) => element("option", { value: name, selected: name === chosen }, name)),
    );
    return element("div", { class: "shading" }, element("label", { class: "quiet" }, "tokens by ", select), legend);
  }

  function keysDialog() {
    const rows = KEYS.map(([keys, says]) =>
      element(
        "tr",
        {},
        element("td", {}, ...keys.split("  ").flatMap((key) => [element("kbd", {}, key), " "])),
        element("td", {}, says),
      ),
    );
    const dialog = element(
      "dialog",
      { class: "keys", "aria-labelledby": "rollouts-keys" },
      element("h2", { id: "rollouts-keys" }, "Keys"),
      element("table", {}, element("tbody", {}, ...rows)),
      button("Close", () => dialog.close()),
    );
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
    return dialog;
  }

  async function copy(text) {
    // the clipboard of a sandboxed frame takes the old way alone
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      /* then as a selection */
    }
    const area = element("textarea", { "aria-label": "link", class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }

  Object.assign(viewer, { movesOf, shadesOf, keysDialog, copy });
})(MasLabRollouts);
