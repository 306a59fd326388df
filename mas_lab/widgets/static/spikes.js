"use strict";
// The SpikeInspector: the chart, and the spike that is chosen, opened to agent, group, sample and token. A link on a
// sample opens its episode in a RolloutViewer below.

let colors = {}; // agent -> colour
const colorOf = (agent) => colors[agent] || "var(--quiet)";
const alone = ({ norms }) => { // the one agent of the spike's policy, whose norm is the policy's, or ""
  const own = Object.keys(norms).filter(Boolean);
  return own.length === 1 ? own[0] : "";
};
const whose = (spike, agent = spike.agent) => agent || alone(spike) || `policy ${spike.policy}`;

// The anatomy. All bars have one scale. `zero` is the place of the line of 0, as a part of a bar's room, and `times` the
// part of the room that a share of 1 takes.

function scaleOf(anatomy) {
  const groups = anatomy.flatMap((agent) => agent.groups), samples = groups.flatMap((group) => group.samples);
  const shares = [...anatomy, ...groups, ...samples].map(({ share }) => share);
  const low = Math.min(0, ...shares), high = Math.max(0, ...shares), room = high - low || 1;
  return { zero: -low / room, times: 1 / room };
}

function scaleInWords({ zero, times }) {
  return `All bars have one scale: from the line to the right end is ${percent((1 - zero) / times)} of the gradient.`
    + (zero > 0 ? " A hatched bar to the left of the line works against the step." : "");
}

function trackOf(share, times, zero = 0) {
  const long = Math.abs(share) * times, bar = h(share < 0 ? "span.share.against" : "span.share");
  bar.style.left = `${(100 * (share < 0 ? zero - long : zero)).toFixed(2)}%`;
  bar.style.width = `${(100 * long).toFixed(2)}%`;
  const made = h("span.track", { "aria-hidden": "true" }, bar);
  made.style.setProperty("--zero", `${(100 * zero).toFixed(2)}%`);
  return made;
}

function shareStrip({ tokens, shares, advantages }, exact) {
  const says = (t) => percent(shares[t]) + (exact ? " of the gradient" : " by the proxy")
    + (t in advantages ? `, advantage ${advantages[t]}` : "");
  const made = stripOf("tokens and their shares", tokens, says, { tabindex: "0" }), most = Math.max(...shares.map(Math.abs)) || 1;
  [...made.children].forEach((token, t) => shadeToken(token, shares[t], most));
  return made;
}

function anatomyOf(spike, linkTo) {
  const scale = scaleOf(spike.anatomy);
  const label = (text) => h("span.label", text), little = (text) => h("p.quiet", text);
  const words = (name, text) => h("pre.said", { tabindex: "0", role: "group", "aria-label": name }, text);

  function fold(name, share, agent, fill, isOpen) {
    const made = folded(h("summary", label(name), trackOf(share, scale.times, scale.zero),
      h("span.part", percent(share))), fill, "details.node");
    made.style.setProperty("--agent", colorOf(agent));
    made.open = isOpen;
    made.unfold();
    return made;
  }

  const sample = (one, agent, isOpen) => fold(`sample ${one.row}, turn ${one.turn}`, one.share, agent, () => [
    h("div.quiet", Object.entries(one.numbers).map(([name, value]) => `${name} ${value}`).join(" · ")),
    ...(one.tokens ? [shareStrip(one, spike.exact), words("what it heard", one.heard),
      words("what it said", one.said || "(nothing)")]
      : [little("Only the largest samples of a spike are kept with their tokens.")]), linkTo(spike, one, agent)], isOpen);

  const group = (one, agent, isOpen) => fold(`group ${one.group} (${counted(one.rows, "row")})`, one.share, agent, () => [
    ...one.samples.map((part, place) => sample(part, agent, isOpen && place === 0)),
    ...(one.little ? [little(`${one.little} more samples below ${percent(0.001)} each`)] : [])], isOpen);

  function groups({ agent, groups: all }, isOpen) { // those of little consequence in one fold
    const [large, small] = [true, false].map((is) => all.filter((part) => Math.abs(part.share) >= 0.01 === is));
    const made = (parts) => parts.map((part, place) => group(part, agent, isOpen && parts !== small && place === 0));
    if (small.length < 4) return made(all);
    return [...made(large), folded(h("summary", label(`${small.length} more groups below 1 % each`)),
      () => made(small), "details.node")];
  }

  return [h("p.quiet", { id: "scales" }, scaleInWords(scale)),
    ...spike.anatomy.map((one, place) => fold(one.agent, one.share, one.agent, () => groups(one, place === 0),
      place === 0))];
}

// The switch: the same batch as it was trained, and under either baseline. Shares are those of the gradient as it was
// trained: under another baseline nothing of them is shown, but what that makes of the largest samples.

const JUDGES = { trained: "as it was trained", global: "global baseline", agent: "agent-wise baseline" };
const normsUnder = (spike, judge) => (judge === "trained" ? spike.norms : spike.baselines[judge]) || {};

function normTable(spike, judge) {
  const most = Math.max(...Object.keys(JUDGES).flatMap((name) => Object.values(normsUnder(spike, name)))),
    isOther = judge !== "trained";
  const norms = Object.entries(normsUnder(spike, judge)).filter(([agent]) => agent || !alone(spike));
  const rows = norms.map(([agent, norm]) => {
    const track = trackOf(norm, 1 / most), change = spike.norms[agent] ? percent(norm / spike.norms[agent] - 1) : "–";
    track.style.setProperty("--agent", colorOf(agent));
    return [agent || "whole policy", track, norm.toPrecision(4), ...(isOther ? [change] : [])];
  });
  const heads = ["agent", "beside the tallest", "norm", ...(isOther ? ["change"] : [])];
  return tableOf(`Gradient norms before clipping, ${JUDGES[judge]}`, heads, rows, { id: "norms", "aria-live": "polite" });
}

function judgedTable(spike, judge) {
  const samples = spike.anatomy.flatMap(({ agent, groups }) =>
    groups.flatMap((part) => part.samples.map((one) => ({ ...one, agent }))));
  const judged = samples.filter((one) => one.judged && judge in one.judged).sort((a, b) =>
    Math.abs(b.share) - Math.abs(a.share));
  const heads = ["sample", "agent", "credit", "advantage as it was trained", `advantage, ${JUDGES[judge]}`];
  const cells = judged.map((one) => [one.row, one.agent, one.numbers.credit, one.numbers.advantage, one.judged[judge]]);
  return tableOf("The samples that had the largest shares as it was trained", heads, cells, { id: "judged" });
}

function judgement(spike, judge, linkTo) {
  const norms = normTable(spike, judge), quiet = (text) => h("p.quiet", text);
  if (judge !== "trained") {
    const note = "Shares of groups, samples and tokens are known of the gradient as it was trained; under the";
    return [norms, judgedTable(spike, judge), quiet(`${note} ${JUDGES[judge]} they would be others.`)];
  }
  const whose = alone(spike) ? "norm" : "whole policy's norm";
  const without = Object.entries(spike.without).map(([row, norm]) =>
    quiet(`Without sample ${row}, the ${whose} would be ${norm.toPrecision(4)} (${percent(norm / spike.norms[""] - 1)}).`));
  const label = spike.exact ? "Shares are exact and sum to 100 %."
    : "Proxy, not shares of the gradient: parts of the summed |advantage| × weight × (1 − p); directions are not known.";
  return [norms, ...without, quiet(label), ...anatomyOf(spike, linkTo)];
}

function judged(spike, linkTo, remembered) { // the switch and what it switches; the judge stays from spike to spike
  const panel = h("div", { id: "judgement" }),
    judges = Object.keys(JUDGES).filter((name) => name === "trained" || name in spike.baselines);
  const choices = judges.map((name) => button(JUDGES[name], () => choose(name)));
  function choose(judge) {
    remembered.judge = judge;
    choices.forEach((choice, place) => pressed(choice, judges[place] === judge));
    panel.replaceChildren(...judgement(spike, judge, linkTo));
  }
  choose(judges.includes(remembered.judge) ? remembered.judge : "trained");
  return [h("div.bar", { role: "group", "aria-label": "Baseline" }, "Judged by:", choices), panel];
}

// The episode of a sample.

function episodesOf(page, bring) {
  const inside = new Set(page ? page.episodes.map(({ step, name }) => keyOf({ step, episode: name })) : []);
  const heading = h("h2", { id: "episode", tabindex: "-1" }, "The episode of a sample"), root = h("div");
  let viewer = null, from = null;
  const section = h("section", { id: "episodes", "aria-labelledby": "episode", hidden: true },
    h("div.heading", heading, button("↑ back to the sample",
      () => bring(from.isConnected ? from : document.getElementById("opened"), "center"))), root);

  function follow(event, where) {
    if (!isOwnClick(event)) return;
    event.preventDefault();
    from = event.currentTarget;
    section.hidden = false;
    if (viewer) viewer.open(where, where);
    else viewer = mount(root, { ...page, at: address(where) });
    bring(heading);
  }

  function linkTo(spike, sample, agent) {
    const where = { step: spike.step, ...sample.at, agent, candidate: Number(sample.at?.candidate || 0) };
    if (!inside.has(keyOf(where))) return "";
    return h("p.into", h("a", { href: address(where), onclick: (event) => follow(event, where) },
      `Sample ${sample.row} in its episode`, " ↓"));
  }

  return { section, linkTo };
}

function inspectSpikes(root, data) {
  colors = data.agents;
  const chart = document.querySelector(".drawing"), remembered = { judge: "trained" }, episodes = episodesOf(data.rollouts, bring);
  const panel = h("section", { id: "anatomy", "aria-labelledby": "opened" });
  const list = data.spikes.map((spike, place) =>
    button(`step ${spike.step}, ${whose(spike)}, norm ${spike.norm.toPrecision(3)}`, () => show(place, true)));
  let isOpen = data.first;

  function bring(target, block = "start") { // what a click opens comes into view
    target.scrollIntoView({ block });
    target.focus({ preventScroll: true });
  }

  function markInChart() { // a line across where the open spike is
    if (!chart.data) return;
    const at = chart.data.flatMap(({ x, customdata }) => x.filter((_, place) => customdata?.[place] === isOpen));
    const line = { type: "line", x0: at[0], x1: at[0], yref: "paper", y0: 0, y1: 1, line: { dash: "dot", width: 1, color: "#888" } };
    Plotly.relayout(chart, { shapes: at.length ? [line] : [] });
  }

  function show(place, isAsked) {
    const spike = data.spikes[place], all = [...new Set(spike.agents.map((agent) => whose(spike, agent)))].join(", ");
    isOpen = place;
    list.forEach((one, other) => pressed(one, other === place));
    markInChart();
    const heading = h("h2", { id: "opened", tabindex: "-1" },
      `Step ${spike.step}, ${whose(spike)}: norm ${spike.norm.toPrecision(3)}`
        + (spike.usual === null ? "" : `, usual ${spike.usual.toPrecision(3)}`));
    panel.replaceChildren(heading,
      h("p.quiet", data.above ? `A spike as it was trained: ${all}; ${spike.score.toFixed(1)} times the usual norm.`
        : "The largest norm of an agent. It is no spike by the rule."),
      ...judged(spike, episodes.linkTo, remembered));
    if (isAsked) bring(heading);
  }

  root.replaceChildren(h("div.bar", { role: "group", "aria-label": "Spikes, highest first" }, list), panel);
  root.parentNode.append(episodes.section);
  chart.addEventListener("drawn", () => {
    markInChart();
    chart.on("plotly_click", ({ points }) => {
      const found = points.find(({ customdata }) => customdata >= 0);
      if (found) show(found.customdata, true);
    });
  });
  if (data.spikes.length) show(data.first, false);
  else panel.append(h("p.quiet", { id: "opened" }, `What these norms are made of was not recorded. ${data.empty}`));
}

inspectSpikes(document.getElementById("spikes"), JSON.parse(document.getElementById("data").textContent));
