"use strict";
// Draws each figure of the page from the data beside it, once it comes near the screen or is printed.
const draw = (place) => {
  const { data, layout, config } = JSON.parse(place.nextElementSibling.textContent);
  Plotly.newPlot(place, data, layout, config).then(() => { // its buttons need a mouse: the Tab key skips them
    for (const button of place.querySelectorAll(".modebar-btn")) button.tabIndex = -1;
    place.dispatchEvent(new Event("drawn"));
  });
};
const all = document.querySelectorAll(".drawing"), waiting = new Set(all);
const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting && waiting.delete(target)) setTimeout(() => draw(target));
  }
}, { rootMargin: "300px" });
for (const place of waiting) near.observe(place);
const resize = (width) => { // those that are as wide as the page
  for (const place of all) if (place.layout && place.style.width === "100%") Plotly.relayout(place, { width, autosize: !width });
};
addEventListener("beforeprint", () => {
  for (const place of waiting) if (place.offsetParent && waiting.delete(place)) draw(place);
  resize(640); // fits the paper
});
addEventListener("afterprint", () => resize(null));
