"use strict";
// In a frame, light or dark as the notebook around it says; where none does, as the system has it. Frames in it are told.
(() => {
  if (window.parent === window) return;
  const root = document.documentElement;
  const tell = (frame) => { if (root.dataset.theme) frame?.postMessage({ theme: root.dataset.theme }, "*"); };
  window.addEventListener("message", ({ source, data }) => {
    if (data?.theme === "?") tell(source);
    if (source !== window.parent || !["dark", "light"].includes(data?.theme)) return;
    root.dataset.theme = data.theme;
    document.querySelectorAll("iframe").forEach((frame) => tell(frame.contentWindow));
  });
  window.parent.postMessage({ theme: "?" }, "*");
})();
