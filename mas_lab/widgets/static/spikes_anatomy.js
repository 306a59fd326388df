"use strict";
// The anatomy of a spike: agent, group, sample, token. Bars of all levels start at one line; each level has its scale.
((spikes) => {
  const { element, folded, percent } = spikes;
  const LEVELS = ["agents", "groups", "samples"];

  // Where the line of 0 stands, as a part of a bar's room, and how much of the room a share of 1 takes on each level.
  function scalesOf(anatomy) {
    const groups = anatomy.flatMap((agent) => agent.groups), samples = groups.flatMap((group) => group.samples);
    const ends = [anatomy, groups, samples].map((parts) => parts.reduce(([low, high], { share }) =>
      [Math.min(low, share), Math.max(high, share)], [0, 0]));
    const zero = Math.max(...ends.map(([low, high]) => (low < 0 ? -low / (high - low) : 0)));
    const times = ends.map(([low, high]) => Math.min(low < 0 ? zero / -low : Infinity, high > 0 ? (1 - zero) / high : Infinity));
    return { zero, times: times.map((one) => (Number.isFinite(one) ? one : 0)) };
  }

  function toldOf({ zero, times }) {
    const full = LEVELS.map((name, level) => (times[level] ? `${percent((1 - zero) / times[level])} among ${name}` : "")).filter(Boolean);
    return `All bars start at one line, and compare within a level: from it to the right end is ${full.join(", ")}.`
      + (zero > 0 ? " A hatched bar to the left of it pulls against the step." : "");
  }

  function track(share, level, { zero, times }) {
    const long = Math.abs(share) * times[level], bar = element("span", { class: share < 0 ? "share against" : "share" });
    bar.style.left = `${(100 * (share < 0 ? zero - long : zero)).toFixed(2)}%`;
    bar.style.width = `${(100 * long).toFixed(2)}%`;
    const made = element("span", { class: "track", "aria-hidden": "true" }, bar);
    made.style.setProperty("--zero", `${(100 * zero).toFixed(2)}%`);
    return made;
  }

  function strip(sample, exact) {
    const most = Math.max(...sample.shares.map(Math.abs)) || 1;
    return element("div", { class: "strip", role: "list", tabindex: "0", "aria-label": "tokens and their shares" }, ...sample.tokens.map((text, t) => {
      const judged = t in sample.advantages ? `, advantage ${sample.advantages[t]}` : "";
      const told = percent(sample.shares[t]) + (exact ? " of the gradient" : " by the proxy") + judged;
      const token = element("span", { class: sample.shares[t] < 0 ? "token below" : "token", role: "listitem", title: told, "aria-label": `${text}: ${told}` }, text);
      token.style.setProperty("--part", (Math.abs(sample.shares[t]) / most).toFixed(3));
      return token;
    }));
  }

  function anatomyOf(spike, names, linkTo) {
    const scales = scalesOf(spike.anatomy);

    function fold(level, label, share, agent, fill, open) {
      const summary = element("summary", {}, element("span", { class: "label" }, label), track(share, level, scales),
        element("span", { class: "part" }, percent(share)));
      const made = folded(summary, fill, { class: "node" });
      made.style.setProperty("--agent", names.color(agent));
      if (open) { made.open = true; made.unfold(); }
      return made;
    }

    const text = (label, said) => element("pre", { class: "said", tabindex: "0", role: "group", "aria-label": label }, said);

    function sample(one, agent, open) {
      const facts = Object.entries(one.numbers).map(([name, value]) => `${name} ${value}`).join(" · ");
      return fold(2, `sample ${one.row}, turn ${one.turn}`, one.share, agent, () => [
        element("div", { class: "quiet" }, facts), ...(one.tokens ? [strip(one, spike.exact),
          text("what it heard", one.heard), text("what it said", one.said || "(nothing)")]
          : [element("p", { class: "quiet" }, "Only the largest samples of a spike are kept with their tokens.")]),
        linkTo(spike, one, agent)].filter(Boolean), open);
    }

    function group(one, agent, open) {
      const rest = one.little ? [element("p", { class: "quiet" }, `${one.little} more samples below ${percent(0.001)} each`)] : [];
      return fold(1, `group ${one.group} (${one.rows} ${one.rows === 1 ? "row" : "rows"})`, one.share, agent,
        () => [...one.samples.map((part, place) => sample(part, agent, open && place === 0)), ...rest], open);
    }

    function groups(agent, open) { // those of little consequence in one fold
      const made = (parts, first) => parts.map((part, place) => group(part, agent.agent, first && place === 0));
      const little = agent.groups.filter((part) => Math.abs(part.share) < 0.01);
      if (little.length < 4) return made(agent.groups, open);
      const label = element("summary", {}, element("span", { class: "label" }, `${little.length} more groups below 1 % each`));
      return [...made(agent.groups.filter((part) => !little.includes(part)), open), folded(label, () => made(little, false), { class: "node" })];
    }

    return [element("p", { class: "quiet", id: "scales" }, toldOf(scales)), ...spike.anatomy.map((one, first) =>
      fold(0, one.agent, one.share, one.agent, () => groups(one, first === 0), first === 0))];
  }

  Object.assign(spikes, { anatomyOf, scalesOf });
})(MasLabSpikes);
