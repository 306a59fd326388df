"use strict";
// Reading the chart: the point nearest to the mouse, or the one that keys walk to, with all that is known of it.
((spikes) => {
  const { element, drawn, swatch, signed } = spikes;
  const SIDE = 24;

  // The point of the lines nearest to a place of the chart; of each line only those beside it are looked at.
  function nearest(lines, { x, y }, mouse) {
    let found = null, least = Infinity;
    for (const line of lines) {
      const { at, norms } = line;
      let [low, high] = [0, at.length];
      while (low < high) { const middle = (low + high) >> 1; if (x(at[middle]) < mouse.x - SIDE) low = middle + 1; else high = middle; }
      for (let place = Math.max(0, low - 1); place < at.length; place += 1) {
        if (norms[place] > 0) {
          const far = Math.hypot(x(at[place]) - mouse.x, y(norms[place]) - mouse.y);
          if (far < least) [found, least] = [{ line, place }, far];
        }
        if (x(at[place]) > mouse.x + SIDE) break;
      }
    }
    return found;
  }

  function tellerOf(data, names) {
    const clipped = new Map(data.clipped.flatMap((own) => own.at.map((at, place) => [`${at}|${own.policy}`, own.norms[place]])));

    function judged(line, place) {
      const [norm, usual, score] = [line.norms[place], line.usual[place], line.scores[place]];
      if (!(norm > 0)) return "no norm: 0, or the optimizer step was skipped";
      if (score === null) return `no score yet: the rule waits for ${data.warmup} norms`;
      return `usual norm ${usual}, score ${signed(score, 1)}`;
    }

    function mark(line, place) {
      if (line.high.includes(place))
        return names.opened(line.policy, line.when[place]) < 0 ? `a spike, ${data.closed}` : "a spike: click, or Enter, opens it";
      const peak = line.peaks.find(([where]) => where === place);
      return peak ? `not marked: ${peak[1]}` : "";
    }

    return ({ line, place }) => {
      const [step, inner] = line.when[place], after = clipped.get(`${line.at[place]}|${line.policy}`);
      const whole = line.agent && !names.alone(line.policy);
      const rest = (after ?? null) === null ? "" : whole ? ` (the whole policy's after clipping: ${after})` : `, after clipping ${after}`;
      return [`step ${step}, its optimizer step ${inner}`, `norm ${line.norms[place] ?? "–"}${rest}`, judged(line, place),
        mark(line, place)].filter(Boolean);
    };
  }

  function readingOf(data, names, chart, act) {
    const tell = tellerOf(data, names);
    const box = element("div", { class: "reading", "aria-hidden": "true", hidden: "" });
    const reader = element("div", { class: "reader", role: "slider", tabindex: "0",
      "aria-label": "Points of the chart: left and right along a line, up and down to another line" });
    const cursor = drawn("g", { class: "cursor", "aria-hidden": "true" });
    let current = null;

    function show(point) {
      current = point;
      cursor.replaceChildren();
      box.hidden = !point;
      if (!point) return;
      const { line, place } = point, { x, y, frame } = chart.scale, norm = line.norms[place], across = x(line.at[place]);
      const dot = norm > 0 ? drawn("circle", { cx: across, cy: y(norm), r: 4.5 }) : null;
      if (dot) dot.style.fill = names.color(line.agent);
      cursor.append(drawn("line", { x1: across, x2: across, y1: frame.top, y2: frame.height - frame.bottom }), ...(dot ? [dot] : []));
      const lines = tell(point);
      box.replaceChildren(element("strong", {}, swatch(names.color(line.agent)), line.name), ...lines.map((one) => element("div", {}, one)));
      settle(across, norm > 0 ? y(norm) : frame.height / 2, frame);
      for (const [name, value] of [["min", 0], ["max", line.at.length - 1], ["now", place], ["text", [line.name, ...lines].join("; ")]])
        reader.setAttribute(`aria-value${name}`, value);
    }

    function settle(across, up, frame) { // the box: beside the point if there is room, else above or below it
      box.style.maxWidth = `${Math.min(frame.width - 8, 480)}px`;
      box.style.left = box.style.top = "0";
      const { offsetWidth: wide, offsetHeight: high } = box, isBeside = Math.max(across, frame.width - across) >= wide + 16;
      const left = isBeside ? (frame.width - across >= wide + 16 ? across + 12 : across - 12 - wide) : across - wide / 2;
      const top = isBeside ? up - high / 2 : up > frame.height / 2 ? up - 14 - high : up + 14;
      box.style.left = `${Math.max(4, Math.min(frame.width - wide - 4, left))}px`;
      box.style.top = `${isBeside ? Math.max(4, Math.min(frame.height - high - 4, top)) : top}px`;
    }

    function rest() { // what stands where no key was pressed yet
      const first = chart.shown()[0];
      for (const [name, value] of [["min", 0], ["max", first ? first.at.length - 1 : 0], ["now", 0], ["text", first ? first.name : "every line is hidden"]])
        reader.setAttribute(`aria-value${name}`, value);
    }

    function other(by) { // the next line, at the place nearest to this one
      const lines = chart.shown(), line = lines[(lines.indexOf(current.line) + by + lines.length) % lines.length];
      const at = current.line.at[current.place];
      const place = line.at.reduce((best, one, here) => (Math.abs(one - at) < Math.abs(line.at[best] - at) ? here : best), 0);
      return { line, place };
    }

    function start() {
      const [line] = chart.shown();
      if (!current && line) show({ line, place: line.high.length ? line.high[0] : 0 });
    }

    function walk(event) {
      start();
      if (!current || event.altKey || event.ctrlKey || event.metaKey) return;
      const { line, place } = current, last = line.at.length - 1, far = Math.max(2, Math.round(last / 10));
      const along = { ArrowLeft: place - 1, ArrowRight: place + 1, PageDown: place - far, PageUp: place + far, Home: 0, End: last };
      const key = event.key;
      if (key in along) show({ line, place: Math.min(last, Math.max(0, along[key])) });
      else if (key === "ArrowUp" || key === "ArrowDown") show(other(key === "ArrowUp" ? -1 : 1));
      else if (key === "Enter" || key === " ") {
        const found = names.opened(line.policy, line.when[place]);
        if (found >= 0 && line.high.includes(place)) act(found);
      } else return;
      event.preventDefault();
      event.stopPropagation();
    }

    function point(event) {
      const { left, top } = chart.svg.getBoundingClientRect();
      show(nearest(chart.shown(), chart.scale, { x: event.clientX - left, y: event.clientY - top }));
    }

    chart.svg.addEventListener("pointermove", point);
    chart.svg.addEventListener("pointerdown", point);
    chart.svg.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch" && document.activeElement !== reader) show(null);
    });
    reader.addEventListener("focus", start);
    reader.addEventListener("blur", () => show(null));
    reader.addEventListener("keydown", walk);
    chart.onRedrawn(() => {
      chart.svg.append(cursor);
      show(current && !chart.isHidden(current.line) ? current : null);
      if (!current) rest();
    });
    chart.region.prepend(reader);
    chart.region.append(box);
  }

  Object.assign(spikes, { readingOf, nearest });
})(MasLabSpikes);
