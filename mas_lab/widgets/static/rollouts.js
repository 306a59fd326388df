"use strict";
// The RolloutViewer on a page: its address and its keys. `MasLabRollouts.mount(root, data)` puts one anywhere.
((viewer) => {
  const mounted = new WeakMap();

  function keysOf(made) {
    // what a key does, while nobody types
    return {
      "/": () => made.index.focus(),
      j: () => made.step(1),
      k: () => made.step(-1),
      f: () => made.failure(),
      ArrowRight: () => made.move("path", 1),
      ArrowLeft: () => made.move("path", -1),
      t: () => made.move("agent", 1),
      T: () => made.move("agent", -1),
      c: () => made.move("candidate", 1),
      C: () => made.move("candidate", -1),
      g: () => made.move("group", 1),
      G: () => made.move("group", -1),
      m: () => made.marks.toggle(made.shown()),
      n: () => made.note.focus(),
      s: () => made.sideBySide(),
      "?": () => made.dialog.showModal(),
      Escape: () => made.parts.length > 1 && made.sideBySide(),
    };
  }

  function pressed(made, event) {
    const { key, target } = event,
      typing = target.closest("input, textarea, select, [contenteditable]");
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || made.dialog.open || !made.part)
      return;
    if (typing) return key === "Escape" && typing.blur();
    const rows = target.closest(".rows") && { ArrowDown: () => made.step(1), ArrowUp: () => made.step(-1) }[key];
    const act = rows || keysOf(made)[key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  // `alone`: the page is the viewer's, its address and all of its keys.
  function mount(root, data, alone = false) {
    mounted.get(root)?.abort(); // what stood there before hears nothing any more
    const gone = new AbortController(),
      { signal } = gone;
    mounted.set(root, gone);
    root.classList.add("viewer");
    const made = new viewer.Viewer(root, data, alone, signal);
    (alone ? document : root).addEventListener("keydown", (event) => pressed(made, event), { signal });
    const there = (hash) => viewer.addressOf(hash);
    const asked = (alone && there(location.hash)) || there(data.at || "");
    if (alone)
      addEventListener(
        "hashchange",
        () => {
          const where = there(location.hash);
          if (where) made.open(where, where);
        },
        { signal },
      );
    if (asked) made.open(asked, asked);
    else if (data.episodes.length) made.open(made.source.first());
    return made;
  }

  viewer.mount = mount;
  const root = document.getElementById("rollouts"),
    data = document.getElementById("data");
  if (root && data) {
    document.documentElement.classList.add("viewer-alone");
    mount(root, JSON.parse(data.textContent), true);
  }
})(MasLabRollouts);
