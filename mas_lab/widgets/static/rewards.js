"use strict";
// Two menus of the RewardInspector's page, "whose mean?" and "whose deviation?": shows the comparison that they choose.
const menus = [...document.querySelectorAll(".whose select")];
for (const menu of menus) menu.addEventListener("change", () => {
  const chosen = menus.map(({ value }) => value).join(", ");
  for (const one of document.querySelectorAll("[data-whose]")) one.hidden = one.dataset.whose !== chosen;
});
