"use strict";
// `#run=0&step=3&episode=…&node=…&candidate=…`: what is shown, as an address that can be sent.
((viewer) => {
  const FIELDS = ["run", "step", "episode", "node", "agent", "candidate", "beside"];
  const well = (text) => (text.toWellFormed ? text.toWellFormed() : text);

  function address(where) {
    const all = { ...where, run: where.run || 0 },
      given = FIELDS.filter((name) => (all[name] ?? "") !== "");
    return `#${given.map((name) => `${name}=${encodeURIComponent(well(String(all[name])))}`).join("&")}`;
  }

  function addressOf(text) {
    // null where it names no episode
    const fields = new URLSearchParams(text.replace(/^#/, "")),
      number = (name) => Number(fields.get(name) || 0);
    if (!fields.get("episode")) return null;
    return {
      run: number("run"),
      step: number("step"),
      episode: fields.get("episode"),
      node: fields.get("node"),
      agent: fields.get("agent"),
      candidate: fields.has("candidate") ? number("candidate") : undefined,
      beside: fields.get("beside"),
    };
  }

  Object.assign(viewer, { address, addressOf });
})(MasLabRollouts);
