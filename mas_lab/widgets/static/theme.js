"use strict";
// In a frame, light or dark as the notebook around it says; where none does, as the system has it.
(() => {
  if (window.parent === window) return;
  window.addEventListener("message", ({ source, data }) => {
    if (source === window.parent && ["dark", "light"].includes(data?.theme)) document.documentElement.dataset.theme = data.theme;
  });
  window.parent.postMessage({ theme: "?" }, "*");
})();
