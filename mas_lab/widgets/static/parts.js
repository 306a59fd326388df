"use strict";
// What pages share. Scripts of a page see each other's names. Text is always textContent, never markup.

// h("p.quiet", {title: "…"}, "text", child): an element with classes, attributes (`on…`: listeners) and children.
function filled(made, classes, parts) {
  if (classes.length) made.setAttribute("class", classes.join(" "));
  const isPlain = parts[0] && Object.getPrototypeOf(parts[0]) === Object.prototype;
  for (const [name, value] of Object.entries(isPlain ? parts.shift() : {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...parts.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

function h(tag, ...parts) {
  const [name, ...classes] = tag.split(".");
  return filled(document.createElement(name), classes, parts);
}

function svg(tag, ...parts) {
  const [name, ...classes] = tag.split(".");
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), classes, parts);
}

const button = (label, onclick, attributes = {}) => h("button", { type: "button", onclick, ...attributes }, label);

function swatch(color) {
  const made = h("span.swatch", { "aria-hidden": "true" });
  made.style.setProperty("--agent", color || "var(--quiet)");
  return made;
}

function folded(summary, fill, tag = "details") { // filled when it is opened first
  const made = h(tag, summary instanceof Node ? summary : h("summary", summary));
  made.unfold = async () => {
    if (!made.open || made.isFilled) return;
    made.isFilled = true;
    made.append(...[await fill()].flat());
  };
  made.addEventListener("toggle", made.unfold);
  return made;
}

function tableOf(label, heads, rows, attributes = {}) { // rows: lists of cells, texts or elements
  const content = (cell) => (cell instanceof Node ? cell : String(cell ?? "–"));
  const line = ([first, ...cells]) => h("tr", h("th", { scope: "row" }, content(first)), cells.map((one) => h("td", content(one))));
  return h("div.table", { tabindex: "0", role: "group", "aria-label": label, ...attributes }, h("table",
    h("caption", label), h("thead", h("tr", heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", rows.map(line))));
}

// The tokens of a completion, each with what `says(t)` tells of it; `shadeToken` colours them.
function stripOf(label, tokens, says, attributes = {}) {
  return h("div.strip", { role: "list", "aria-label": label, ...attributes }, tokens.map((text, t) =>
    h("span.token", { role: "listitem", title: says(t), "aria-label": `${text}: ${says(t)}` }, text.replaceAll("\n", "↵\n"))));
}

function shadeToken(token, value, most) {
  token.classList.toggle("below", value < 0);
  token.style.setProperty("--part", most && known(value) ? (Math.abs(value) / most).toFixed(3) : 0);
}

const pressed = (one, is) => one.setAttribute("aria-pressed", String(is));
const isOwnClick = (event) => !(event.ctrlKey || event.metaKey || event.shiftKey || event.button); // else the browser's: a tab
const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
const rounded = (value) => (known(value) ? Math.round(value).toLocaleString("en") : "");
const minus = (text) => text.replace("-", "−");
const decimal = (value, places = 2) => (known(value) ? minus(value.toFixed(places)) : "");
const signed = (value, places = 2) => (known(value) ? (value > 0 ? "+" : "") + decimal(value, places) : "");
const percent = (share) => minus((100 * share).toFixed(1).replace(/^-(0\.0)$/, "$1")) + " %";
const counted = (number, word) => `${rounded(number)} ${word}${number === 1 ? "" : "s"}`;
const outcome = (success) => (known(success) ? (success ? "reached the goal" : "missed the goal") : "");
const tick = (success) => (known(success) ? (success ? "✓" : "✗") : "·");
const keyOf = ({ run, step, episode }) => [run || 0, step, episode].join("|");

function leaning(value, most) { // a bar for a number: to the right above 0, to the left below
  const made = h("span.lean", { "aria-hidden": "true" }, h("span"));
  const part = most ? Math.min(1, Math.abs(value || 0) / most) * 50 : 0;
  made.firstChild.style.left = value < 0 ? `${50 - part}%` : "50%";
  made.firstChild.style.width = `${part}%`;
  return made;
}

// `#run=0&step=3&episode=…&node=…&candidate=…`: a place, as an address that can be sent.
const FIELDS = ["run", "step", "episode", "node", "agent", "candidate", "beside"];

function address(where) {
  const all = { ...where, run: where.run || 0 }, named = FIELDS.filter((name) => (all[name] ?? "") !== "");
  return `#${named.map((name) => `${name}=${encodeURIComponent(all[name])}`).join("&")}`;
}

function addressOf(text) { // null where it names no episode
  const fields = new URLSearchParams(text.replace(/^#/, "")), number = (name) => Number(fields.get(name) || 0);
  if (!fields.get("episode")) return null;
  return { ...Object.fromEntries(fields), run: number("run"), step: number("step"),
    candidate: fields.has("candidate") ? number("candidate") : undefined };
}

function replaceAddress(hash) {
  try { history.replaceState(null, "", hash); } catch { /* a sandboxed frame has no address */ }
}
