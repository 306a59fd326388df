"use strict";
// The norms of #data as a chart whose spikes are buttons, the anatomy of the spike chosen, and its samples' episodes.
// All text is textContent.
((spikes) => {
  const { element, button, table, folded, swatch, namesOf, chartOf, readingOf, judged, episodesOf } = spikes;
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.getElementById("spikes");
  const names = namesOf(data), remembered = { judge: "trained" };
  const chart = chartOf(data, names, (place) => show(place, true));

  // The legend: a press hides a line or shows it; `only`, or a double click, leaves that line alone, and again shows all.

  function legend() {
    const made = element("div", { class: "bar legend", role: "group", "aria-label": "Lines of the chart" });
    const press = () => data.lines.forEach((line, place) => {
      const is = !chart.isHidden(line), isAlone = is && chart.shown().length === 1;
      parts[place][0].setAttribute("aria-pressed", String(is));
      parts[place][1].setAttribute("aria-pressed", String(isAlone && data.lines.length > 1));
    });
    const set = (lines) => { chart.show(lines); press(); };
    const flip = (line) => set(data.lines.filter((one) => (one === line) === chart.isHidden(one)));
    const only = (line) => set(chart.shown().length === 1 && !chart.isHidden(line) ? data.lines : [line]);
    const parts = data.lines.map((line) => [
      button(element("span", {}, swatch(names.color(line.agent)), line.name), () => flip(line), { ondblclick: () => only(line) }),
      button("only", () => only(line), { "aria-label": `only ${line.name}` })]);
    made.append(...parts.map((both) => element("span", { class: "key" }, ...(parts.length > 1 ? both : both.slice(0, 1)))));
    if (data.clipped.length) {
      const dotted = button("after clipping", () => {
        chart.showClipped(!chart.isClippedShown);
        dotted.setAttribute("aria-pressed", String(chart.isClippedShown));
      }, { class: "dotted", "aria-pressed": "true" });
      made.append(element("span", { class: "key" }, dotted));
    }
    const told = [data.spikes.length && "Filled circles open.",
      data.lines.some((line) => line.peaks.length) && "Small rings are peaks taller than a spike that the rule does not mark."];
    made.append(element("span", { class: "quiet" }, told.filter(Boolean).join(" ")));
    press();
    return made;
  }

  function unmarked() {
    const told = data.lines.flatMap((line) => line.peaks.map(([place, why]) =>
      element("li", {}, `${line.name} at step ${line.when[place][0]}, norm ${line.norms[place]}, is not marked: ${why}`)));
    const title = `Taller than a marked spike, and not marked: ${told.length === 1 ? "a peak" : `${told.length} peaks (the tallest of each line)`}, and why`;
    return told.length ? element("details", { id: "peaks" }, element("summary", {}, title), element("ul", { class: "quiet" }, ...told)) : null;
  }

  function numbers() {
    const heads = ["whose", "step", "optimizer step", "norm before clipping", "usual norm", "score", "spike"];
    const rows = () => data.lines.flatMap((line) => {
      const high = new Set(line.high);
      return line.norms.map((norm, place) => [line.name, ...line.when[place], norm, line.usual[place], line.scores[place], high.has(place) ? "yes" : ""]);
    });
    return folded("The numbers behind this chart", () => [table("Gradient norms", heads, rows())]);
  }

  // What a click opens comes into view; which one it was is marked in the chart and in the list.

  const panel = element("section", { id: "anatomy", "aria-labelledby": "opened" });
  const list = data.spikes.map((spike, place) => button(
    `step ${spike.step}, ${names.whose(spike.policy, spike.agent)}, norm ${spike.norm.toPrecision(3)}`, () => show(place, true)));

  function bring(target) {
    target.scrollIntoView({ block: "start" });
    target.focus({ preventScroll: true });
  }

  function back() {
    chart.region.scrollIntoView({ block: "center" });
    if (!chart.focusMark()) list[Math.max(0, list.findIndex((one) => one.getAttribute("aria-pressed") === "true"))].focus({ preventScroll: true });
  }

  function show(place, asked) {
    const spike = data.spikes[place];
    list.forEach((one, other) => one.setAttribute("aria-pressed", String(other === place)));
    chart.open(place);
    const all = [...new Set(spike.agents.map((agent) => names.whose(spike.policy, agent)))].join(", ");
    const heading = element("h2", { id: "opened", tabindex: "-1" },
      `Step ${spike.step}, ${names.whose(spike.policy, spike.agent)}: norm ${spike.norm.toPrecision(3)}, usual ${spike.usual.toPrecision(3)}`);
    panel.replaceChildren(
      element("div", { class: "heading" }, heading, button("↑ back to the chart", back)),
      element("p", { class: "quiet" }, `Spiked as it was trained: ${all}; ${spike.score.toFixed(1)} robust standard deviations.`),
      ...judged(spike, names, episodes.linkTo, remembered));
    if (asked) bring(heading);
  }

  const episodes = episodesOf(data, bring);
  root.replaceChildren(...[legend(), chart.region, unmarked(), numbers(),
    element("div", { class: "bar", role: "group", "aria-label": "Spikes, highest first" }, ...list), panel, episodes.section].filter(Boolean));
  readingOf(data, names, chart, (place) => show(place, true));
  chart.draw();
  if (data.spikes.length) show(0, false);
  else panel.append(element("h2", { id: "opened" }, "No spike was opened"),
    element("p", {}, "Train with watch=SpikeWatch() to record what spikes are made of."));
  episodes.start();
})(MasLabSpikes);
