"use strict";
// What the files of the SpikeInspector share besides: tables, what unfolds, shares in words, and names.
globalThis.MasLabSpikes = ((parts) => {
  const { element, minus } = parts;

  function table(caption, heads, rows, attributes = {}) { // rows: lists of cells, texts or elements
    const told = (cell) => (cell instanceof Node ? cell : String(cell ?? "–"));
    const row = ([first, ...cells]) => element("tr", {}, element("th", { scope: "row" }, told(first)), ...cells.map((cell) => element("td", {}, told(cell))));
    return element("div", { class: "table", tabindex: "0", role: "group", "aria-label": caption, ...attributes }, element("table", {},
      element("caption", {}, caption), element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
      element("tbody", {}, ...rows.map(row))));
  }

  function folded(summary, fill, attributes = {}) { // filled when it is opened first
    const made = element("details", attributes, summary instanceof Node ? summary : element("summary", {}, summary));
    made.unfold = () => { if (made.open && made.children.length === 1) made.append(...fill()); };
    made.addEventListener("toggle", made.unfold);
    return made;
  }

  const percent = (share) => minus((100 * share).toFixed(1).replace(/^-(0\.0)$/, "$1")) + " %";

  function namesOf(data) { // colours, and the names of policies and agents
    const color = (agent) => data.agents[agent] || "var(--quiet)";
    const alone = (policy) => { // the one agent of a policy, whose norm is the policy's
      const own = data.lines.filter((line) => line.policy === policy);
      return own.length === 1 ? own[0].agent : "";
    };
    const whose = (policy, agent) => agent || alone(policy) || `policy ${policy}`;
    const places = new Map(data.spikes.map((spike, place) => [JSON.stringify([spike.policy, spike.step, spike.optimizer_step]), place]));
    const opened = (policy, when) => places.get(JSON.stringify([policy, ...when])) ?? -1;
    return { color, alone, whose, opened };
  }

  return { ...parts, table, folded, percent, namesOf };
})(MasLabParts);
