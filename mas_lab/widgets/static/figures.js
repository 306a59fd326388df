"use strict";
// Draws each figure of the page from the data beside it, once it comes near the screen or is printed.
const PAPER = 640; // pixels across that fit a printed page
const draw = (place) => {
  const { data, layout, config } = JSON.parse(place.nextElementSibling.textContent);
  Plotly.newPlot(place, data, layout, config).then(() => { // its buttons need a mouse: the Tab key skips them
    for (const button of place.querySelectorAll(".modebar-btn")) button.tabIndex = -1;
  });
};
const waiting = new Set(document.querySelectorAll(".drawing")), wide = [...waiting].filter((place) => place.style.width === "100%");
const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting && waiting.delete(target)) setTimeout(() => draw(target));
  }
}, { rootMargin: "300px" });
for (const place of waiting) near.observe(place);
const resize = (width) => wide.filter((place) => place.layout).forEach((place) => Plotly.relayout(place, { width, autosize: !width }));
addEventListener("beforeprint", () => {
  for (const place of waiting) if (place.offsetParent && waiting.delete(place)) draw(place);
  resize(PAPER);
});
addEventListener("afterprint", () => resize(null));
