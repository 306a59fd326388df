"use strict";
// Draws each figure of the page from the data beside it.
for (const place of document.querySelectorAll(".drawing")) {
  const { data, layout, config } = JSON.parse(place.nextElementSibling.textContent);
  Plotly.newPlot(place, data, layout, config);
}
