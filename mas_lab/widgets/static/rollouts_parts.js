"use strict";
// What the files of the RolloutViewer share besides: how an episode is named, its outcome, and a bar for a number.
globalThis.MasLabRollouts = ((parts) => {
  const { element, known } = parts;
  const outcome = (success) => (known(success) ? (success ? "reached the goal" : "missed the goal") : "");
  const tick = (success) => (known(success) ? (success ? "✓" : "✗") : "·");
  const keyOf = ({ run, step, episode }) => [run || 0, step, episode].join("|");

  function bar(value, most) {
    // to the right above 0, to the left below
    const made = element("span", { class: "lean", "aria-hidden": "true" }, element("span", {}));
    const part = most ? Math.min(1, Math.abs(value || 0) / most) * 50 : 0;
    made.firstChild.style.left = value < 0 ? `${50 - part}%` : "50%";
    made.firstChild.style.width = `${part}%`;
    return made;
  }

  return { ...parts, outcome, tick, keyOf, bar };
})(MasLabParts);
