"use strict";
// In a notebook: tells the frames of this kit whether the notebook is light or dark, when they ask and when it changes.
// JupyterLab, Notebook 7 and nbconvert say so in data-jp-theme-light, VS Code in a class of the body, Colab in theme.
(() => {
  if (window.masLabTheme) return;
  const theme = () => {
    const { jpThemeLight } = document.body.dataset;
    if (jpThemeLight) return jpThemeLight === "false" ? "dark" : "light";
    const isNamed = (name) => document.body.classList.contains("vscode-" + name);
    if (isNamed("light") || isNamed("high-contrast-light")) return "light";
    if (isNamed("dark") || isNamed("high-contrast")) return "dark";
    return document.documentElement.getAttribute("theme");
  };
  const tell = (frame) => frame?.postMessage({ theme: theme() }, "*"); // a sandboxed frame has no origin to name
  const tellAll = () => document.querySelectorAll("iframe.mas-lab").forEach((frame) => tell(frame.contentWindow));
  window.addEventListener("message", ({ source, data }) => { if (data?.theme === "?") tell(source); });
  window.masLabTheme = new MutationObserver(tellAll);
  for (const place of [document.body, document.documentElement])
    window.masLabTheme.observe(place, { attributeFilter: ["data-jp-theme-light", "class", "theme"] });
  tellAll();
})();
