"use strict";
// Shows one of the steps that the page holds: its tables, and its bars in the figure that all of them share.
const held = JSON.parse(document.getElementById("data").textContent);
const figure = document.querySelector("#spread .drawing");
const parts = [...document.querySelectorAll("section[data-step]")];
const buttons = [...document.querySelectorAll("#steps button")];

function show(step) {
  for (const part of parts) part.hidden = part.dataset.step !== step;
  for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.step === step);
  const { counts, means } = held.steps[step];
  const lines = {};
  means.forEach((at, place) => {
    lines[`shapes[${place}].x0`] = lines[`shapes[${place}].x1`] = at ?? 0;
    lines[`shapes[${place}].visible`] = at !== null;
  });
  Plotly.update(figure, { y: counts }, lines);
}

function choose(step) {
  show(step);
  try { history.replaceState(null, "", `#step=${step}`); } catch { /* a frame may forbid it */ }
}

for (const button of buttons) button.addEventListener("click", () => choose(button.dataset.step));
function follow() {
  const asked = new URLSearchParams(location.hash.slice(1)).get("step");
  if (asked in held.steps) show(asked);
}
addEventListener("hashchange", follow);
follow();
