"use strict";
// The norms of #data as a chart whose spikes are buttons, and the anatomy of the spike chosen. All text is textContent.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.getElementById("spikes");
  const SVG = "http://www.w3.org/2000/svg";
  const frame = { width: 1000, height: 340, left: 62, right: 14, top: 12, bottom: 44 };

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "onclick") made.onclick = value;
      else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  function drawn(tag, attributes, text) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const percent = (share) => (100 * share).toFixed(1).replace(/^-(0\.0)$/, "$1") + " %";
  const color = (agent) => data.agents[agent] || data.whole;
  const alone = (policy) => { // the one agent of a policy, whose norm is the policy's
    const own = data.lines.filter((line) => line.policy === policy);
    return own.length === 1 ? own[0].agent : "";
  };
  const whose = (policy, agent) => agent || alone(policy) || `policy ${policy}`;
  const opened = (policy, [step, inner]) => data.spikes.findIndex((spike) =>
    spike.policy === policy && spike.step === step && spike.optimizer_step === inner);

  // The chart: optimizer steps to the right, norms upwards on a log scale.

  function scales() {
    const norms = data.lines.flatMap((line) => line.norms.filter((norm) => norm > 0));
    const longest = Math.max(2, ...data.lines.map((line) => 1 + line.at[line.at.length - 1]));
    const [low, high] = norms.length
      ? [Math.log10(norms.reduce((a, b) => Math.min(a, b))) - 0.05, Math.log10(norms.reduce((a, b) => Math.max(a, b))) + 0.1] : [0, 1];
    const x = (place) => frame.left + (place / (longest - 1)) * (frame.width - frame.left - frame.right);
    const y = (norm) => frame.height - frame.bottom
      - ((Math.log10(norm) - low) / (high - low)) * (frame.height - frame.top - frame.bottom);
    return { x, y, low, high, longest };
  }

  function ticks(low, high) {
    const exponents = Array.from({ length: Math.ceil(high) - Math.floor(low) + 1 }, (_, place) => Math.floor(low) + place);
    const inside = (factors) => exponents.flatMap((exponent) => factors.map((factor) => factor * 10 ** exponent))
      .filter((norm) => Math.log10(norm) >= low && Math.log10(norm) <= high);
    return [[1], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]].map(inside).find((found) => found.length > 2)
      || inside(Array.from({ length: 90 }, (_, tenth) => 1 + tenth / 10));
  }

  function axes(svg, { x, y, low, high, longest }) {
    const style = { "font-size": 13, fill: "#333" };
    for (const norm of ticks(low, high))
      svg.append(drawn("line", { x1: frame.left, x2: frame.width - frame.right, y1: y(norm), y2: y(norm), stroke: "#ddd" }),
        drawn("text", { ...style, x: frame.left - 8, y: y(norm) + 4, "text-anchor": "end" }, Number(norm.toPrecision(3))));
    const apart = Math.max(1, Math.ceil(longest / 10));
    for (let place = 0; place < longest; place += apart)
      svg.append(drawn("text", { ...style, x: x(place), y: frame.height - 24, "text-anchor": "middle" }, place));
    svg.append(drawn("text", { ...style, x: frame.width / 2, y: frame.height - 6, "text-anchor": "middle" }, "optimizer step"),
      drawn("text", { ...style, transform: `translate(14 ${frame.height / 2}) rotate(-90)`, "text-anchor": "middle" },
        "gradient norm before clipping (log scale)"));
  }

  function pressable(mark, act) {
    mark.addEventListener("click", act);
    mark.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); }
    });
  }

  function chart() {
    const spiked = data.lines.reduce((sum, line) => sum + line.high.length, 0);
    const svg = drawn("svg", { class: "chart", viewBox: `0 0 ${frame.width} ${frame.height}`, role: "group",
      "aria-label": `Gradient norms of ${data.lines.map((line) => line.name).join("; ")} over optimizer steps, ${spiked} spikes marked` });
    const scale = scales();
    axes(svg, scale);
    for (const line of data.lines) {
      let pen = "M";
      const path = line.norms.map((norm, place) => {
        if (!(norm > 0)) { pen = "M"; return ""; }
        const piece = `${pen}${scale.x(line.at[place]).toFixed(1)} ${scale.y(norm).toFixed(1)}`;
        pen = "L";
        return piece;
      }).join("");
      svg.append(drawn("path", { d: path, fill: "none", stroke: color(line.agent), "stroke-width": line.agent ? 1.6 : 2.6 }));
    }
    for (const line of data.lines) {
      for (const [place, why] of line.peaks) {
        const ring = drawn("circle", { cx: scale.x(line.at[place]), cy: scale.y(line.norms[place]), r: 4, class: "peak", fill: "#fff",
          stroke: color(line.agent), "stroke-width": 1.2 });
        ring.append(drawn("title", {}, peak(line, place, why)));
        svg.append(ring);
      }
      for (const place of line.high) {
        const found = opened(line.policy, line.when[place]);
        const label = `Spike of ${line.name} at step ${line.when[place][0]}: norm ${line.norms[place]}`;
        const mark = drawn("circle", { cx: scale.x(line.at[place]), cy: scale.y(line.norms[place]), r: 7, class: "spike",
          fill: found < 0 ? "#fff" : color(line.agent), stroke: color(line.agent), "stroke-width": 2.5 });
        mark.append(drawn("title", {}, label + (found < 0 ? ` (${data.closed})` : "")));
        if (found >= 0) {
          for (const [name, value] of [["role", "button"], ["tabindex", "0"], ["aria-label", label], ["style", "cursor:pointer"]])
            mark.setAttribute(name, value);
          pressable(mark, () => show(found, true));
        }
        svg.append(mark);
      }
    }
    return svg;
  }

  const peak = (line, place, why) => `${line.name} at step ${line.when[place][0]}, norm ${line.norms[place]}, is not marked: ${why}`;

  function unmarked() {
    const told = data.lines.flatMap((line) => line.peaks.map(([place, why]) => element("li", {}, peak(line, place, why))));
    const title = `Taller than a marked spike, and not marked: ${told.length === 1 ? "a peak" : `${told.length} peaks (the tallest of each line)`}, and why`;
    return told.length ? [element("details", { id: "peaks" }, element("summary", {}, title), element("ul", { class: "quiet" }, ...told))] : [];
  }

  function legend() {
    return element("div", { class: "bar" }, ...data.lines.map((line) => {
      const swatch = element("span", { class: "swatch" });
      swatch.style.setProperty("--agent", color(line.agent));
      return element("span", {}, swatch, line.name);
    }), element("span", { class: "quiet" }, "Filled circles open."));
  }

  function numbers() {
    const heads = ["whose", "step", "optimizer step", "norm before clipping", "spike"];
    const row = (cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, String(cell ?? "–"))));
    const rows = () => data.lines.flatMap((line) => {
      const high = new Set(line.high);
      return line.norms.map((norm, place) => row([line.name, ...line.when[place], norm, high.has(place) ? "yes" : ""]));
    });
    const folded = element("details", {}, element("summary", {}, "The numbers behind this chart"));
    folded.addEventListener("toggle", () => {
      if (!folded.open || folded.children.length > 1) return;
      folded.append(element("div", { class: "table", tabindex: "0" }, element("table", {}, element("caption", {}, "Gradient norms"),
        element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
        element("tbody", {}, ...rows()))));
    });
    return folded;
  }

  // The anatomy: agent, group, sample, token.

  let exact = true, judge = "trained"; // of the spike that is shown

  function bar(share, agent) {
    const made = element("span", { class: share < 0 ? "share against" : "share", "aria-hidden": "true" });
    made.style.setProperty("--agent", color(agent));
    made.style.width = `min(${Math.min(16, 16 * Math.abs(share)).toFixed(2)}rem, ${Math.min(40, 40 * Math.abs(share)).toFixed(1)}vw)`;
    return made;
  }

  function fold(label, share, agent, fill, open) {
    const made = element("details", { class: "node" }, element("summary", {}, `${label}: ${percent(share)} `, bar(share, agent)));
    made.style.setProperty("--agent", color(agent));
    const once = () => { if (made.open && made.children.length === 1) made.append(...fill()); };
    made.addEventListener("toggle", once);
    if (open) { made.open = true; once(); }
    return made;
  }

  function strip(sample, agent) {
    const most = Math.max(...sample.shares.map(Math.abs)) || 1;
    return element("div", { class: "strip", role: "list", "aria-label": "tokens and their shares" }, ...sample.tokens.map((text, t) => {
      const part = Math.abs(sample.shares[t]) / most;
      const judged = t in sample.advantages ? `, advantage ${sample.advantages[t]}` : "";
      const told = percent(sample.shares[t]) + (exact ? " of the gradient" : " by the proxy") + judged;
      const token = element("span", { class: "token", role: "listitem", title: told, "aria-label": `${text}: ${told}` }, text);
      const full = sample.shares[t] < 0 ? [86, 180, 233] : [230, 159, 0];
      token.style.background = `rgb(${full.map((channel) => Math.round(255 - (255 - channel) * part)).join(",")})`;
      return token;
    }));
  }

  function sample(one, agent, open) {
    const facts = Object.entries(one.numbers).map(([name, value]) => `${name} ${value}`).join(" · ");
    return fold(`sample ${one.row}, turn ${one.turn}`, one.share, agent, () => [
      element("div", { class: "quiet" }, facts), ...(one.tokens ? [strip(one, agent),
        element("pre", { class: "said", tabindex: "0", "aria-label": "what it heard" }, one.heard),
        element("pre", { class: "said", tabindex: "0", "aria-label": "what it said" }, one.said || "(nothing)")]
        : [element("p", { class: "quiet" }, "Only the largest samples of a spike are kept with their tokens.")])], open);
  }

  function group(one, agent, open) {
    const rest = one.little ? [element("p", { class: "quiet" }, `${one.little} more samples below 0.1 % each`)] : [];
    return fold(`group ${one.group} (${one.rows} ${one.rows === 1 ? "row" : "rows"})`, one.share, agent,
      () => [...one.samples.map((part, place) => sample(part, agent, open && place === 0)), ...rest], open);
  }

  function groups(agent, open) { // those of little consequence in one fold
    const made = (parts, first) => parts.map((part, place) => group(part, agent.agent, first && place === 0));
    const little = agent.groups.filter((part) => Math.abs(part.share) < 0.01);
    if (little.length < 4) return made(agent.groups, open);
    const folded = element("details", { class: "node" }, element("summary", {}, `${little.length} more groups below 1 % each`));
    folded.addEventListener("toggle", () => { if (folded.open && folded.children.length === 1) folded.append(...made(little, false)); });
    return [...made(agent.groups.filter((part) => !little.includes(part)), open), folded];
  }

  // The switch: the same batch as it was trained, and under either baseline. Shares are those of the gradient as it was
  // trained: under another baseline nothing of them is shown, but what that makes of the largest samples.

  const JUDGES = { trained: "as it was trained", global: "global baseline", agent: "agent-wise baseline" };
  const normsUnder = (spike, name) => (name === "trained" ? spike.norms : spike.baselines[name]);

  function switcher(spike, shown) {
    const known = ["trained", "global", "agent"].filter((name) => name === "trained" || name in spike.baselines);
    const choices = known.map((name) => element("button", { type: "button", "aria-pressed": String(name === judge), onclick: () => {
      judge = name;
      choices.forEach((choice, place) => choice.setAttribute("aria-pressed", String(known[place] === judge)));
      shown.replaceChildren(...judgement(spike));
    } }, JUDGES[name]));
    return element("div", { class: "bar", role: "group", "aria-label": "Baseline" }, "Judged by:", ...choices);
  }

  function normBars(spike) {
    const most = Math.max(...["trained", "global", "agent"].flatMap((name) => Object.values(normsUnder(spike, name) || {})));
    const shown = Object.entries(normsUnder(spike, judge)).filter(([agent]) => agent || !alone(spike.policy));
    const rows = shown.map(([agent, norm]) => {
      const change = spike.norms[agent] ? percent(norm / spike.norms[agent] - 1) : "–";
      return element("tr", {}, element("th", { scope: "row" }, agent || "whole policy"), element("td", {}, bar(norm / most, agent)),
        element("td", {}, norm.toPrecision(4)), element("td", {}, judge === "trained" ? "" : change));
    });
    return [element("table", {}, element("caption", {}, `Gradient norms before clipping, ${JUDGES[judge]}`),
      element("thead", {}, element("tr", {}, ...["agent", "beside the tallest", "norm", "change"].map((head) => element("th", { scope: "col" }, head)))),
      element("tbody", {}, ...rows))];
  }

  function judgedSamples(spike) {
    const samples = spike.anatomy.flatMap((agent) => agent.groups.flatMap((part) => part.samples.map((one) => ({ ...one, agent: agent.agent }))));
    const known = samples.filter((one) => one.judged && judge in one.judged).sort((a, b) => Math.abs(b.share) - Math.abs(a.share));
    const heads = ["sample", "agent", "credit", "advantage as it was trained", `advantage, ${JUDGES[judge]}`];
    const cells = (one) => [one.row, one.agent, one.numbers.credit ?? "–", one.numbers.advantage ?? "–", one.judged[judge]];
    const rows = known.map((one) => element("tr", {}, ...cells(one).map((cell) => element("td", {}, String(cell)))));
    return element("div", { class: "table", id: "judged", tabindex: "0" }, element("table", {},
      element("caption", {}, "The samples that had the largest shares as it was trained"),
      element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))), element("tbody", {}, ...rows)));
  }

  function judgement(spike) {
    const norms = element("div", { class: "table", id: "norms" }, ...normBars(spike));
    if (judge !== "trained") {
      const note = `Shares of groups, samples and tokens are known of the gradient as it was trained; under the ${JUDGES[judge]} they would be others.`;
      return [norms, judgedSamples(spike), element("p", { class: "quiet" }, note)];
    }
    const without = Object.entries(spike.without).map(([row, norm]) => element("p", { class: "quiet" },
      `Without sample ${row}, the ${alone(spike.policy) ? "norm" : "whole policy's norm"} would be ${norm.toPrecision(4)} (${percent(norm / spike.norms[""] - 1)}).`));
    const told = element("p", { class: "quiet" }, spike.exact ? "Shares are exact and sum to 100 %."
      : "Proxy, not shares of the gradient: parts of the summed |advantage| × weight × (1 − p); directions are not known.");
    return [norms, ...without, told, ...spike.anatomy.map((one, first) =>
      fold(one.agent, one.share, one.agent, () => groups(one, first === 0), first === 0))];
  }

  function counterfactuals(spike) {
    if (!(judge in spike.baselines)) judge = "trained";
    const shown = element("div", { id: "judgement", "aria-live": "polite" }, ...judgement(spike));
    return [switcher(spike, shown), shown];
  }

  const panel = element("section", { "aria-live": "polite", tabindex: "-1", id: "anatomy" });
  const buttons = data.spikes.map((spike, place) => element("button", { type: "button", onclick: () => show(place, true) },
    `step ${spike.step}, ${whose(spike.policy, spike.agent)}, norm ${spike.norm.toPrecision(3)}`));

  function show(place, asked) {
    const spike = data.spikes[place];
    exact = spike.exact;
    buttons.forEach((button, other) => button.setAttribute("aria-pressed", String(other === place)));
    const all = [...new Set(spike.agents.map((agent) => whose(spike.policy, agent)))].join(", ");
    panel.replaceChildren(
      element("h2", {}, `Step ${spike.step}, ${whose(spike.policy, spike.agent)}: norm ${spike.norm.toPrecision(3)}, usual ${spike.usual.toPrecision(3)}`),
      element("p", { class: "quiet" }, `Spiked as it was trained: ${all}; ${spike.score.toFixed(1)} robust standard deviations.`),
      ...counterfactuals(spike));
    if (asked) panel.focus({ preventScroll: true });
  }

  root.replaceChildren(legend(), element("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Norms" }, chart()), ...unmarked(), numbers(),
    element("div", { class: "bar", role: "group", "aria-label": "Spikes, highest first" }, ...buttons), panel);
  if (data.spikes.length) show(0, false);
  else panel.append(element("p", {}, "No spike was opened: train with watch=SpikeWatch() to record what spikes are made of."));
})();
