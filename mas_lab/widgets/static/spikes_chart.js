"use strict";
// The chart: optimizer steps to the right, norms upwards on a log scale, as wide as the page; spikes are buttons.
((spikes) => {
  const { element, drawn } = spikes;
  const NARROW = 560, NEAR = 24;
  const within = (list) => [list.reduce((a, b) => Math.min(a, b)), list.reduce((a, b) => Math.max(a, b))];

  function scalesOf(frame, norms, longest) {
    const [least, most] = norms.length ? within(norms) : [1, 10];
    const low = Math.log10(least) - 0.05, high = Math.log10(most) + 0.1;
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

  function apart(longest, room) { // 1, 2 or 5 times a power of ten, with room for each label
    const least = Math.max(1, longest / Math.max(2, Math.floor(room / 70)));
    const power = 10 ** Math.floor(Math.log10(least));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
  }

  function axes(frame, { x, y, low, high, longest }) {
    const made = drawn("g", { "aria-hidden": "true" }), end = frame.width - frame.right;
    for (const norm of ticks(low, high))
      made.append(drawn("line", { x1: frame.left, x2: end, y1: y(norm), y2: y(norm) }),
        drawn("text", { x: frame.left - 8, y: y(norm) + 4, "text-anchor": "end" }, String(Number(norm.toPrecision(3)))));
    const step = apart(longest, end - frame.left);
    for (let place = 0; place < longest; place += step)
      made.append(drawn("text", { x: x(place), y: frame.height - 22, "text-anchor": "middle" }, String(place)));
    made.append(drawn("text", { x: end, y: frame.height - 6, "text-anchor": "end" }, "optimizer step"),
      drawn("text", { x: 8, y: 16 }, "gradient norm before clipping (log scale)"));
    return made;
  }

  function curve(scale, { at, norms }) {
    let pen = "M";
    return norms.map((norm, place) => {
      if (!(norm > 0)) { pen = "M"; return ""; }
      const piece = `${pen}${scale.x(at[place]).toFixed(1)} ${scale.y(norm).toFixed(1)}`;
      pen = "L";
      return piece;
    }).join("");
  }

  function chartOf(data, names, act) {
    const svg = drawn("svg", { class: "chart", role: "group" });
    const region = element("div", { class: "norms" }, svg);
    const longest = Math.max(2, ...data.lines.map((line) => 1 + line.at[line.at.length - 1]));
    const hidden = new Set();
    const shown = () => data.lines.filter((line) => !hidden.has(line));
    let isClippedShown = true, isOpen = -1, width = 0, scale = null, marks = [], redrawn = () => {};
    const clipped = () => (isClippedShown ? data.clipped.filter((own) => shown().some((line) => line.policy === own.policy)) : []);

    function mark(line, place) {
      const found = names.opened(line.policy, line.when[place]), shade = names.color(line.agent);
      const label = `Spike of ${line.name} at step ${line.when[place][0]}: norm ${line.norms[place]}`;
      const made = drawn("circle", { cx: scale.x(line.at[place]), cy: scale.y(line.norms[place]), r: 7, class: "spike" });
      made.style.stroke = shade;
      if (found < 0) return made;
      made.style.fill = shade;
      for (const [name, value] of [["role", "button"], ["tabindex", "0"], ["aria-label", label]]) made.setAttribute(name, value);
      made.addEventListener("click", (event) => { // of several above one another, the mouse means the nearest
        if (event.detail) return;
        event.stopPropagation();
        act(found);
      });
      made.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(found); }
      });
      marks.push([found, made]);
      return made;
    }

    function ring(line, place) {
      const made = drawn("circle", { cx: scale.x(line.at[place]), cy: scale.y(line.norms[place]), r: 4, class: "peak" });
      made.style.stroke = names.color(line.agent);
      return made;
    }

    function path(own, shade, kind) {
      const made = drawn("path", { d: curve(scale, own), class: kind });
      made.style.stroke = shade;
      return made;
    }

    function draw() {
      width = region.clientWidth || 1000;
      const focused = marks.findIndex(([, made]) => made === document.activeElement);
      const frame = { width, height: width < NARROW ? 280 : 350, left: 46, right: 12, top: 30, bottom: 40 };
      const lines = shown(), dotted = clipped();
      scale = { ...scalesOf(frame, [...lines, ...dotted].flatMap((line) => line.norms.filter((norm) => norm > 0)), longest), frame };
      for (const [name, value] of [["viewBox", `0 0 ${width} ${frame.height}`], ["width", width], ["height", frame.height],
        ["aria-label", told(lines)]]) svg.setAttribute(name, value);
      marks = [];
      svg.replaceChildren(axes(frame, scale),
        ...dotted.map((own) => path(own, names.color(names.alone(own.policy)), "clipped")),
        ...lines.map((line) => path(line, names.color(line.agent), line.agent ? "curve" : "curve whole")),
        ...lines.flatMap((line) => line.peaks.map(([place]) => ring(line, place))),
        ...lines.flatMap((line) => line.high.map((place) => mark(line, place))));
      if (focused >= 0 && marks[focused]) marks[focused][1].focus({ preventScroll: true });
      open(isOpen);
      redrawn();
    }

    function told(lines) {
      const spiked = lines.reduce((sum, line) => sum + line.high.length, 0);
      return lines.length ? `Gradient norms of ${lines.map((line) => line.name).join("; ")} over optimizer steps, ${spiked} spikes marked`
        : "Gradient norms: every line is hidden";
    }

    function open(place) {
      isOpen = place;
      for (const [found, made] of marks) {
        made.setAttribute("aria-pressed", String(found === isOpen));
        made.classList.toggle("open", found === isOpen);
      }
    }

    function markAt(x, y) { // the spike to open nearest to a place of the chart, or -1
      const far = ([, made]) => Math.hypot(made.getAttribute("cx") - x, made.getAttribute("cy") - y);
      const nearest = marks.reduce((best, one) => (best && far(best) <= far(one) ? best : one), null);
      return nearest && far(nearest) < NEAR ? nearest[0] : -1;
    }

    svg.addEventListener("click", (event) => {
      const { left, top } = svg.getBoundingClientRect(), found = markAt(event.clientX - left, event.clientY - top);
      if (found >= 0) act(found);
    });
    new ResizeObserver(() => { if (region.clientWidth && region.clientWidth !== width) draw(); }).observe(region);

    return {
      region, svg, shown, draw, open, isHidden: (line) => hidden.has(line),
      show(lines) { data.lines.forEach((line) => (lines.includes(line) ? hidden.delete(line) : hidden.add(line))); draw(); },
      showClipped(is) { isClippedShown = is; draw(); },
      focusMark: () => { const own = marks.find(([found]) => found === isOpen); if (own) own[1].focus({ preventScroll: true }); return Boolean(own); },
      onRedrawn(then) { redrawn = then; },
      get scale() { return scale; }, get isClippedShown() { return isClippedShown; },
    };
  }

  Object.assign(spikes, { chartOf });
})(MasLabSpikes);
