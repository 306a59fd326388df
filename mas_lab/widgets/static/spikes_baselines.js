"use strict";
// The switch: the same batch as it was trained, and under either baseline. Shares are those of the gradient as it was
// trained: under another baseline nothing of them is shown, but what that makes of the largest samples.
((spikes) => {
  const { element, button, table, percent, anatomyOf } = spikes;
  const JUDGES = { trained: "as it was trained", global: "global baseline", agent: "agent-wise baseline" };
  const normsUnder = (spike, judge) => (judge === "trained" ? spike.norms : spike.baselines[judge]);

  function normTable(spike, judge, names) {
    const most = Math.max(...Object.keys(JUDGES).flatMap((name) => Object.values(normsUnder(spike, name) || {})));
    const shown = Object.entries(normsUnder(spike, judge)).filter(([agent]) => agent || !names.alone(spike.policy));
    const rows = shown.map(([agent, norm]) => {
      const bar = element("span", { class: "share" }), track = element("span", { class: "track", "aria-hidden": "true" }, bar);
      bar.style.width = `${((100 * norm) / most).toFixed(2)}%`;
      track.style.setProperty("--agent", names.color(agent));
      const change = judge === "trained" ? [] : [spike.norms[agent] ? percent(norm / spike.norms[agent] - 1) : "–"];
      return [agent || "whole policy", track, norm.toPrecision(4), ...change];
    });
    const heads = ["agent", "beside the tallest", "norm", ...(judge === "trained" ? [] : ["change"])];
    return table(`Gradient norms before clipping, ${JUDGES[judge]}`, heads, rows, { id: "norms", "aria-live": "polite" });
  }

  function judgedTable(spike, judge) {
    const samples = spike.anatomy.flatMap((agent) => agent.groups.flatMap((part) => part.samples.map((one) => ({ ...one, agent: agent.agent }))));
    const known = samples.filter((one) => one.judged && judge in one.judged).sort((a, b) => Math.abs(b.share) - Math.abs(a.share));
    const heads = ["sample", "agent", "credit", "advantage as it was trained", `advantage, ${JUDGES[judge]}`];
    const cells = known.map((one) => [one.row, one.agent, one.numbers.credit, one.numbers.advantage, one.judged[judge]]);
    return table("The samples that had the largest shares as it was trained", heads, cells, { id: "judged" });
  }

  function judgement(spike, judge, names, linkTo) {
    const norms = normTable(spike, judge, names);
    if (judge !== "trained") {
      const note = `Shares of groups, samples and tokens are known of the gradient as it was trained; under the ${JUDGES[judge]} they would be others.`;
      return [norms, judgedTable(spike, judge), element("p", { class: "quiet" }, note)];
    }
    const without = Object.entries(spike.without).map(([row, norm]) => element("p", { class: "quiet" },
      `Without sample ${row}, the ${names.alone(spike.policy) ? "norm" : "whole policy's norm"} would be ${norm.toPrecision(4)} (${percent(norm / spike.norms[""] - 1)}).`));
    const told = element("p", { class: "quiet" }, spike.exact ? "Shares are exact and sum to 100 %."
      : "Proxy, not shares of the gradient: parts of the summed |advantage| × weight × (1 − p); directions are not known.");
    return [norms, ...without, told, ...anatomyOf(spike, names, linkTo)];
  }

  // The switch and what it switches; `remembered.judge` stays from spike to spike.
  function judged(spike, names, linkTo, remembered) {
    if (!(remembered.judge in spike.baselines)) remembered.judge = "trained";
    const shown = element("div", { id: "judgement" }, ...judgement(spike, remembered.judge, names, linkTo));
    const known = Object.keys(JUDGES).filter((name) => name === "trained" || name in spike.baselines);
    const choices = known.map((name) => button(JUDGES[name], () => {
      remembered.judge = name;
      press();
      shown.replaceChildren(...judgement(spike, name, names, linkTo));
    }));
    const press = () => choices.forEach((choice, place) => choice.setAttribute("aria-pressed", String(known[place] === remembered.judge)));
    press();
    return [element("div", { class: "bar", role: "group", "aria-label": "Baseline" }, "Judged by:", ...choices), shown];
  }

  Object.assign(spikes, { judged });
})(MasLabSpikes);
