"use strict";
// What the pages of several instruments share: elements, whose text is always textContent, and how numbers are written.
globalThis.MasLabParts = (() => {
  const SVG = "http://www.w3.org/2000/svg";

  function filled(made, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return made;
  }

  const element = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
  const drawn = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);
  const button = (label, onclick, attributes = {}) =>
    element("button", { type: "button", onclick, ...attributes }, label);

  function swatch(color) {
    const made = element("span", { class: "swatch", "aria-hidden": "true" });
    made.style.setProperty("--agent", color || "var(--quiet)");
    return made;
  }

  const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
  const whole = (value) => (known(value) ? Math.round(value).toLocaleString("en") : "");
  const minus = (text) => text.replace("-", "−");
  const decimal = (value, places = 2) => (known(value) ? minus(value.toFixed(places)) : "");
  const signed = (value, places = 2) => (known(value) ? (value > 0 ? "+" : "") + decimal(value, places) : "");
  const counted = (number, word, plural = word + "s") => `${whole(number)} ${number === 1 ? word : plural}`;

  return { element, drawn, button, swatch, known, whole, minus, decimal, signed, counted };
})();
