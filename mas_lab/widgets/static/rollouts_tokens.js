"use strict";
// Tokens shaded by a number that each one has: by how much a shade is full, what it means, and the numbers themselves.
((viewer) => {
  const { element, known, decimal, signed } = viewer;
  const plain = (value) => decimal(value, 2);
  const SHADES = {
    surprise: { says: "−log p of each when it was sampled", unit: "nats", tell: plain },
    entropy: { says: "entropy of the policy at each", unit: "nats", tell: plain },
    advantage: { says: "praised: orange, blamed: blue", unit: "", tell: (value) => signed(value, 2), both: true },
    share: {
      says: "of the gradient, along it: orange, against it: blue",
      unit: "",
      tell: (value) => `${signed(100 * value, 2)} %`,
      both: true,
    },
  };

  function mostOf(episodes, shade) {
    // the largest size of a number, over all tokens of what is shown
    let most = 0;
    for (const { nodes } of episodes)
      for (const { candidates } of nodes)
        for (const { shades } of candidates)
          for (const value of (shades && shades[shade]) || []) if (Math.abs(value) > most) most = Math.abs(value);
    return most;
  }

  function legend(shade, most) {
    const { says, unit, tell, both } = SHADES[shade],
      end = `${tell(most)}${unit ? ` ${unit}` : ""}`;
    const ramp = element("span", { class: both ? "ramp both" : "ramp", "aria-hidden": "true" });
    return [
      element("span", { class: "ends" }, element("span", {}, both ? tell(-most) : "0"), ramp, element("span", {}, end)),
      element("span", { class: "says" }, says),
    ];
  }

  function toldOf(candidate, t) {
    const parts = Object.entries(candidate.shades || {}).flatMap(([name, all]) =>
      known(all[t]) && SHADES[name] ? [`${name} ${SHADES[name].tell(all[t])}`] : [],
    );
    return [`id ${candidate.ids[t]}`, ...parts].join(", ");
  }

  function shadeToken(token, value, most) {
    token.classList.toggle("below", value < 0);
    token.style.setProperty("--part", most && known(value) ? (Math.abs(value) / most).toFixed(3) : 0);
  }

  const strips = new WeakMap();

  function strip(candidate, shade, most) {
    const values = (candidate.shades || {})[shade] || [];
    const made = element(
      "div",
      { class: "strip", role: "list", "aria-label": "tokens" },
      ...candidate.tokens.map((text, t) => {
        const told = toldOf(candidate, t);
        const token = element(
          "span",
          { class: "token", role: "listitem", title: told, "aria-label": `${text}: ${told}` },
          text.replaceAll("\n", "↵\n"),
        );
        shadeToken(token, values[t], most);
        return token;
      }),
    );
    strips.set(made, candidate);
    return made;
  }

  function reshade(root, shade, most) {
    // the strips that stand open
    for (const made of root.querySelectorAll(".strip")) {
      const values = (strips.get(made).shades || {})[shade] || [];
      [...made.children].forEach((token, t) => shadeToken(token, values[t], most));
    }
  }

  function numbers(candidate) {
    // the same as a table, made when it is asked for
    const made = element("details", { class: "numbers" }, element("summary", {}, "as a table"));
    made.addEventListener("toggle", () => {
      if (!made.open || made.children.length > 1) return;
      const names = Object.keys(candidate.shades || {}).filter((name) => SHADES[name]);
      const head = element("tr", {}, ...["token", "id", ...names].map((name) => element("th", { scope: "col" }, name)));
      const lines = candidate.tokens.map((text, t) =>
        element(
          "tr",
          {},
          element("td", {}, text),
          element("td", {}, String(candidate.ids[t])),
          ...names.map((name) =>
            element("td", {}, known(candidate.shades[name][t]) ? SHADES[name].tell(candidate.shades[name][t]) : ""),
          ),
        ),
      );
      made.append(
        element(
          "div",
          { class: "table", tabindex: "0", role: "group", "aria-label": "tokens and their numbers" },
          element("table", {}, element("thead", {}, head), element("tbody", {}, ...lines)),
        ),
      );
    });
    return made;
  }

  // Do the tokens' own texts make what was said? Then they stand in its place, else below it.
  const readable = (candidate) => candidate.tokens.some((text, t) => text !== `#${candidate.ids[t]}`);

  Object.assign(viewer, { mostOf, legend, strip, reshade, numbers, readable });
})(MasLabRollouts);
