"use strict";
// The chart of gradient norms: optimizer steps to the right, norms upwards on a log scale. Spikes are buttons; any point
// tells its numbers to the mouse and, once the chart has the focus, to the arrow keys.
const NEAR = 24; // pixels around a spike that a click reaches

function logTicks(low, high) {
  const exponents = Array.from({ length: Math.ceil(high) - Math.floor(low) + 1 }, (_, place) => Math.floor(low) + place);
  const inside = (factors) => exponents.flatMap((exponent) => factors.map((factor) => factor * 10 ** exponent))
    .filter((norm) => Math.log10(norm) >= low && Math.log10(norm) <= high);
  const tenths = Array.from({ length: 90 }, (_, tenth) => 1 + tenth / 10);
  return [[1], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]].map(inside).find((found) => found.length > 2) || inside(tenths);
}

function stepBetween(longest, room) { // 1, 2 or 5 times a power of ten, with room for each label
  const least = Math.max(1, longest / Math.max(2, Math.floor(room / 70))), power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
}

// `data`: lines, clipped norms, spikes; `names`: colours and names; `act(number)` opens a spike.
function chartOf(data, names, act) {
  const picture = svg("svg.chart", { role: "group" }), box = h("div.reading", { "aria-hidden": "true", hidden: true });
  const reader = h("div.reader", { role: "slider", tabindex: "0",
    "aria-label": "Points of the chart: left and right along a line, up and down to another line" });
  const region = h("div.norms", reader, picture, box), cursor = svg("g.cursor", { "aria-hidden": "true" }), hidden = new Set();
  const longest = Math.max(2, ...data.lines.map((line) => 1 + line.at.at(-1)));
  const frame = { left: 46, right: 12, top: 30, bottom: 40 };
  const visible = () => data.lines.filter((line) => !hidden.has(line));
  const clipped = () => data.clipped.filter((own) => !hidden.has("clipped")
    && visible().some((line) => line.policy === own.policy));
  let marks = [], isOpen = -1, current = null, low = 0, high = 1;

  const x = (place) => frame.left + (place / (longest - 1)) * (frame.width - frame.left - frame.right);
  const y = (norm) => frame.height - frame.bottom - ((Math.log10(norm) - low) / (high - low)) * (frame.height - frame.top - frame.bottom);

  function axes() {
    const end = frame.width - frame.right, step = stepBetween(longest, end - frame.left);
    const places = Array.from({ length: Math.ceil(longest / step) }, (_, at) => at * step);
    return svg("g", { "aria-hidden": "true" },
      logTicks(low, high).map((norm) => [svg("line", { x1: frame.left, x2: end, y1: y(norm), y2: y(norm) }),
        svg("text", { x: frame.left - 8, y: y(norm) + 4, "text-anchor": "end" }, String(Number(norm.toPrecision(3))))]).flat(),
      places.map((place) => svg("text", { x: x(place), y: frame.height - 22, "text-anchor": "middle" }, String(place))),
      svg("text", { x: end, y: frame.height - 6, "text-anchor": "end" }, "optimizer step"),
      svg("text", { x: 8, y: 16 }, "gradient norm before clipping (log scale)"));
  }

  function curve({ at, norms }, color, kind) { // a norm of 0 leaves a gap
    const d = norms.map((norm, place) =>
      (norm > 0 ? `${norms[place - 1] > 0 ? "L" : "M"}${x(at[place]).toFixed(1)} ${y(norm).toFixed(1)}` : "")).join("");
    return svg("path", { d, class: kind, style: `stroke: ${color}` });
  }

  function mark(line, place) {
    const found = names.opened(line.policy, line.when[place]), color = names.color(line.agent);
    const at = { cx: x(line.at[place]), cy: y(line.norms[place]), r: 7 };
    if (found < 0) return svg("circle.spike", { ...at, style: `stroke: ${color}` });
    const label = `Spike of ${line.name} at step ${line.when[place][0]}: norm ${line.norms[place]}`;
    const onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(found); } };
    // A mouse means the nearest of several above one another: the picture hears its click.
    const onclick = (event) => { if (!event.detail) { event.stopPropagation(); act(found); } };
    const made = svg("circle.spike", { ...at, role: "button", tabindex: "0", "aria-label": label, onkeydown, onclick,
      style: `stroke: ${color}; fill: ${color}` });
    marks.push([found, made]);
    return made;
  }

  function draw() {
    const lines = visible(), focused = marks.findIndex(([, made]) => made === document.activeElement);
    const norms = [...lines, ...clipped()].flatMap((line) => line.norms.filter((norm) => norm > 0));
    const [least, most] = norms.reduce(([a, b], norm) => [Math.min(a, norm), Math.max(b, norm)],
      norms.length ? [Infinity, 0] : [1, 10]);
    frame.width = region.clientWidth || 1000;
    frame.height = frame.width < 560 ? 280 : 350;
    [low, high] = [Math.log10(least) - 0.05, Math.log10(most) + 0.1];
    const spiked = lines.reduce((sum, line) => sum + line.high.length, 0);
    const described = lines.length ? `Gradient norms of ${lines.map((line) => line.name).join("; ")} over optimizer steps, ${spiked} spikes marked`
      : "Gradient norms: every line is hidden";
    const looks = { viewBox: `0 0 ${frame.width} ${frame.height}`, width: frame.width, height: frame.height,
      "aria-label": described };
    for (const [name, value] of Object.entries(looks)) picture.setAttribute(name, value);
    marks = [];
    picture.replaceChildren(axes(), ...clipped().map((own) => curve(own, names.color(names.alone(own.policy)), "clipped")),
      ...lines.map((line) => curve(line, names.color(line.agent), line.agent ? "curve" : "curve whole")),
      ...lines.flatMap((line) => line.high.map((place) => mark(line, place))), cursor);
    if (focused >= 0 && marks[focused]) marks[focused][1].focus({ preventScroll: true });
    open(isOpen);
    read(current && lines.includes(current.line) ? current : null);
  }

  function open(number) {
    isOpen = number;
    for (const [found, made] of marks) {
      pressed(made, found === isOpen);
      made.classList.toggle("open", found === isOpen);
    }
  }

  function markAt(left, top) { // the spike to open nearest to a place of the chart, or -1
    const far = ([, made]) => Math.hypot(made.getAttribute("cx") - left, made.getAttribute("cy") - top);
    const nearest = marks.reduce((best, one) => (best && far(best) <= far(one) ? best : one), null);
    return nearest && far(nearest) < NEAR ? nearest[0] : -1;
  }

  // Reading: a point is {line, place}.

  function described({ line, place }) {
    const norm = line.norms[place], usual = line.usual[place], score = line.scores[place], [step, inner] = line.when[place];
    const judged = !(norm > 0) ? "no norm: 0, or the optimizer step was skipped"
      : score === null ? `no score yet: the rule waits for ${data.warmup} norms`
        : `${score.toFixed(1)} times the usual norm ${usual}`;
    const spike = names.opened(line.policy, line.when[place]) < 0 ? `a spike, ${data.closed}`
      : "a spike: click, or Enter, opens it";
    return [`step ${step}, its optimizer step ${inner}`, `norm ${norm ?? "–"}`, judged,
      ...(line.high.includes(place) ? [spike] : [])];
  }

  function read(point) {
    const first = visible()[0], { line, place } = point ?? { line: first, place: 0 };
    current = point;
    cursor.replaceChildren();
    box.hidden = !point;
    const lines = point ? described(point) : [];
    const values = { min: 0, max: line ? line.at.length - 1 : 0, now: place,
      text: line ? [line.name, ...lines].join("; ") : "every line is hidden" };
    for (const [name, value] of Object.entries(values)) reader.setAttribute(`aria-value${name}`, value);
    if (!point) return;
    const norm = line.norms[place], cx = x(line.at[place]), cy = norm > 0 ? y(norm) : frame.height / 2;
    cursor.append(svg("line", { x1: cx, x2: cx, y1: frame.top, y2: frame.height - frame.bottom }));
    if (norm > 0) cursor.append(svg("circle", { cx, cy, r: 4.5, style: `fill: ${names.color(line.agent)}` }));
    box.replaceChildren(h("strong", swatch(names.color(line.agent)), line.name), ...lines.map((one) => h("div", one)));
    settle(cx, cy);
  }

  function settle(cx, cy) { // the box: beside the point if there is room, else above or below it
    box.style.maxWidth = `${Math.min(frame.width - 8, 480)}px`;
    box.style.left = box.style.top = "0";
    const { offsetWidth: wide, offsetHeight: high } = box, fits = frame.width - cx >= wide + 16,
      isBeside = fits || cx >= wide + 16;
    const left = !isBeside ? cx - wide / 2 : fits ? cx + 12 : cx - 12 - wide;
    const top = isBeside ? cy - high / 2 : cy > frame.height / 2 ? cy - 14 - high : cy + 14;
    box.style.left = `${Math.max(4, Math.min(frame.width - wide - 4, left))}px`;
    box.style.top = `${isBeside ? Math.max(4, Math.min(frame.height - high - 4, top)) : top}px`;
  }

  function nearestPoint(lines, far) { // the point of lines with the least `far(line, place)`
    const all = lines.flatMap((line) => line.at.map((_, place) => ({ line, place, far: far(line, place) })));
    return all.reduce((best, one) => (best && best.far <= one.far ? best : one), null);
  }

  function walk(event) {
    const lines = visible(), { line, place } = current ?? { line: lines[0], place: 0 };
    if (!line || event.altKey || event.ctrlKey || event.metaKey) return;
    const along = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: line.at.length - 1 }[event.key];
    const across = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (along !== undefined) read({ line, place: Math.min(line.at.length - 1, Math.max(0, along)) });
    else if (across) {
      const other = lines[(lines.indexOf(line) + across + lines.length) % lines.length];
      read(nearestPoint([other], (_, at) => Math.abs(other.at[at] - line.at[place])));
    } else if (event.key === "Enter" || event.key === " ") {
      const found = names.opened(line.policy, line.when[place]);
      if (found >= 0 && line.high.includes(place)) act(found);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function within(event) {
    const { left, top } = picture.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  }

  function point(event) {
    const [left, top] = within(event);
    const far = (line, place) => (line.norms[place] > 0
      ? Math.hypot(x(line.at[place]) - left, y(line.norms[place]) - top) : Infinity);
    read(nearestPoint(visible(), far));
  }

  picture.addEventListener("click", (event) => {
    const found = markAt(...within(event));
    if (found >= 0) act(found);
  });
  picture.addEventListener("pointermove", point);
  picture.addEventListener("pointerdown", point);
  picture.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch" && document.activeElement !== reader) read(null);
  });
  reader.addEventListener("focus", () => {
    const [line] = visible();
    if (!current && line) read({ line, place: line.high[0] ?? 0 });
  });
  reader.addEventListener("blur", () => read(null));
  reader.addEventListener("keydown", walk);
  new ResizeObserver(() => { if (region.clientWidth && region.clientWidth !== frame.width) draw(); }).observe(region);
  return {
    region, draw, open, isHidden: (line) => hidden.has(line),
    toggle(line) { if (!hidden.delete(line)) hidden.add(line); draw(); },
    focusMark: () => { const own = marks.find(([found]) =>
      found === isOpen); own?.[1].focus({ preventScroll: true }); return Boolean(own); },
  };
}
