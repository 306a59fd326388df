"use strict";
// Marks and notes of episodes: kept where the browser keeps things, told to whoever listens, written out as CSV.
((viewer) => {
  const { keyOf } = viewer;
  const COLUMNS = ["step", "episode", "task", "node", "note"];

  function kept(name) {
    // a sandboxed frame has no storage, and says so by throwing
    try {
      return JSON.parse(localStorage.getItem(name)) || [];
    } catch {
      return [];
    }
  }

  function keep(name, all) {
    try {
      localStorage.setItem(name, JSON.stringify(all));
    } catch {
      /* then they last as long as the page */
    }
  }

  function cell(value) {
    // a spreadsheet runs what begins like a formula
    const text = String(value ?? ""),
      safe = /^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  function csv(all, runs) {
    const columns = runs > 1 ? ["run", ...COLUMNS] : COLUMNS;
    const lines = all.map((one) => columns.map((name) => cell(one[name])).join(","));
    return [columns.join(","), ...lines].join("\r\n") + "\r\n";
  }

  function save(name, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function marksOf(data, changed) {
    const name = `mas_lab marks: ${(data.runs || []).join(" | ")}`;
    const all = new Map(kept(name).map((one) => [keyOf(one), one]));
    const dropped = new Map(); // a mark taken away by mistake comes back with its note
    const told = () => [...all.values()];
    return {
      get count() {
        return all.size;
      },
      has: (key) => all.has(key),
      note: (key) => all.get(key)?.note || "",
      set(shown, note) {
        // a note marks, too
        const key = keyOf(shown),
          { run = 0, step, episode, task } = shown;
        all.set(key, { run, step, episode, task, node: shown.node, note });
        return this.tell();
      },
      toggle(shown) {
        const key = keyOf(shown),
          before = all.get(key);
        if (!before) return this.set(shown, dropped.get(key) || "");
        dropped.set(key, before.note);
        all.delete(key);
        return this.tell();
      },
      tell() {
        keep(name, told());
        changed(told());
      },
      all: told,
      csv: () => csv(told(), (data.runs || []).length),
      save() {
        save("marks.csv", this.csv());
      },
    };
  }

  Object.assign(viewer, { marksOf });
})(MasLabRollouts);
