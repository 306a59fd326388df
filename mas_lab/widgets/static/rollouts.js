"use strict";
// The RolloutViewer: what is shown, what is done with it, its keys. `mount(root, data)` puts one anywhere on a page.

const KEYS = [
  ["/", "filter"],
  ["j  k", "next, previous episode of the index"],
  ["f", "next failure"],
  ["→  ←", "along the path, and back"],
  ["t  T", "the same agent's next, previous turn"],
  ["c  C", "next, previous candidate"],
  ["g  G", "next, previous member of the comparison group; it may lie in another episode"],
  ["m", "mark, or take the mark away"],
  ["n", "write a note"],
  ["s", "side by side: the same task at another step, or in the other run"],
  ["Esc", "leave what is open"],
  ["?", "this list"],
];
const ARROWS = [
  { name: "path", short: "path", says: "along the path", keys: ["←", "→"] },
  { name: "agent", short: "agent's turns", says: "this agent's turns", keys: ["T", "t"] },
  { name: "candidate", short: "candidates", says: "candidates of the node", keys: ["C", "c"] },
  { name: "group", short: "group", says: "members of the comparison group", keys: ["G", "g"] },
];

function movesOf(move) { // the buttons of the four moves, with where one is in each
  const parts = new Map(ARROWS.map(({ name, short, says, keys }) => {
    const arrow = (sign, label, by, key) =>
      button(sign, () => move(name, by), { "aria-label": `${label}: ${says} (key ${key})`, title: `key ${key}` });
    const back = arrow("‹", "previous", -1, keys[0]), on = arrow("›", "next", 1, keys[1]), where = h("span.where");
    const what = h("span.what", h("span.quiet", short), where);
    return [name, { part: h("div.move", { role: "group", "aria-label": says, title: says }, back, what, on), where, back, on }];
  }));
  function set(name, { now, count }, before, after) {
    const { where, back, on } = parts.get(name);
    where.textContent = now ? `${now} of ${count}` : "–";
    back.setAttribute("aria-disabled", String(!before));
    on.setAttribute("aria-disabled", String(!after));
  }
  const [path, ...others] = [...parts.values()].map(({ part }) => part);
  return { path, others: h("div.moves", others), set };
}

function keysDialog() {
  const rows = KEYS.map(([keys, says]) => h("tr", h("td", keys.split("  ").flatMap((key) => [h("kbd", key), " "])),
    h("td", says)));
  const dialog = h("dialog.keys", { "aria-labelledby": "rollouts-keys" }, h("h2", { id: "rollouts-keys" }, "Keys"),
    h("table", h("tbody", rows)), button("Close", () => dialog.close()));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}

// Brings an element into view in whatever scrolls here: the pane itself, or, on a small screen, the page.
function reveal(pane, target, under = 0, full = target) {
  const box = target.getBoundingClientRect(), end = full.getBoundingClientRect().bottom, frame = pane.getBoundingClientRect();
  if (pane.scrollHeight > pane.clientHeight + 1 && getComputedStyle(pane).overflowY !== "visible") {
    const top = frame.top + under;
    if (box.top < top || end > frame.bottom) pane.scrollTop += box.top - top - 10;
  } else if (box.top < under || end > innerHeight) target.scrollIntoView({ block: "start" });
}

const nameOf = (episode) => ({ run: episode.run || 0, step: episode.step, episode: episode.name });

class Viewer {
  constructor(root, data, alone) { // `alone`: the page is the viewer's, its address and all of its keys
    Object.assign(this, { root, data, alone, parts: [], shade: (data.shades || [])[0] || "surprise", most: 0 });
    this.marks = marksOf(data, (key) => this.markChanged(key));
    this.source = sourceOf(data, this.marks, (top) => this.listed(top));
    this.context = {
      data, source: this.source, marks: this.marks, shade: () => this.shade, most: () => this.most,
      show: (where) => this.open(where, {}, true),
      follow: (event, where) => this.follow(event, where),
      goto: (...spot) => this.goto(...spot),
    };
    this.index = indexOf(this.context);
    this.dialog = keysDialog();
    root.replaceChildren(this.index.part, this.build(), this.dialog);
    this.markChanged();
  }

  build() {
    const shades = this.data.shades || [], note = "Note on this episode";
    this.moves = movesOf((name, by) => this.move(name, by));
    this.legend = h("span.legend");
    this.live = h("p.live.quiet", { role: "status" });
    this.note = h("input.note", { type: "text", placeholder: note, "aria-label": note,
      onchange: () => this.marks.set(this.where(), this.note.value) });
    this.star = button("☆", () => this.marks.toggle(this.where()), { title: "key m", "aria-label": "Mark", class: "marks" });
    this.both = button("side by side", () => this.sideBySide(), { "aria-pressed": "false", title: "key s" });
    this.saving = button("export marks", () => this.marks.save(), { title: "as a table, CSV" });
    this.columns = h("div.beside");
    const select = h("select", { "aria-label": "Shade tokens by", onchange: () => this.setShade(select.value) },
      shades.map((name) => h("option", { value: name, selected: name === this.shade }, name)));
    this.lists = button("all episodes", () => this.list(), { class: "lists", "aria-expanded": "false" });
    const more = h("details.more", h("summary", "more"), this.moves.others, h("div.does", this.both,
      shades.length ? h("label.quiet", "tokens by ", select) : "",
      button("link", () => this.copyLink(), { title: "copy a link to this spot" }), this.star, this.note, this.saving,
      button("keys", () => this.dialog.showModal(), { title: "key ?" })));
    this.bar = h("div.does.first", this.lists, this.moves.path,
      button("next failure", () => this.failure(), { title: "key f" }), more);
    this.pane = h("section.pane", { "aria-label": "Episode" }, h("div.head", this.bar, this.live),
      shades.length ? h("div.shading", this.legend) : "", this.columns);
    return this.pane;
  }

  list() { // where the viewer is narrow, the index is folded
    const isOpen = this.root.classList.toggle("listing");
    this.lists.setAttribute("aria-expanded", String(isOpen));
  }

  get part() { return this.parts[0]; }

  // An episode, and a spot in it.

  open(target, spot = {}, brought = false) {
    const episode = this.source.open(target);
    if (!episode) {
      if (!this.part) this.open(this.source.first());
      this.say(`Episode ${target.episode} of step ${target.step} is not on this page.`);
      return;
    }
    this.render(episode, spotOf(episode, spot), spot.beside ? this.source.open(addressOf(spot.beside)) : null);
    if (spot.node) this.reveal();
    else if (brought) reveal(this.root, this.pane);
  }

  render(episode, spot, other) {
    const all = [episode, other].filter(Boolean);
    this.most = mostOf(all, this.shade);
    this.parts = [];
    this.parts = all.map((one, at) => paneOf(this.context, one, this.source.rowOf(keyOf(nameOf(one))),
      at ? this.picker(episode, one) : ""));
    this.columns.replaceChildren(...this.parts.map(({ part }) => part));
    this.root.classList.toggle("two", all.length > 1);
    pressed(this.both, all.length > 1);
    this.legend.replaceChildren(...legendOf(this.shade, this.most));
    this.parts.forEach((part, at) => {
      part.spot = at ? spotOf(part.episode, {}) : spot;
      scrollable(part.part);
      part.mark(part.spot);
    });
    this.index.showCurrent(keyOf(nameOf(episode)));
    this.showMark();
    this.tellPosition();
  }

  goto(part, place, candidate, scroll = true) {
    part.spot = { place, candidate };
    part.mark(part.spot);
    if (part === this.part) this.tellPosition();
    if (scroll) this.reveal(part);
  }

  reveal(part = this.part) {
    const [node, candidate] = part.mark(part.spot), at = part.episode.nodes[part.spot.place], { bar } = this;
    const isTall = candidate.getBoundingClientRect().bottom - node.getBoundingClientRect().top > part.part.clientHeight;
    const isFirst = cardOf(at, part.spot.candidate) === cardsOf(at)[0];
    const under = getComputedStyle(bar).position === "sticky" ? bar.offsetHeight + 8 : 0;
    reveal(part.part, isTall && !isFirst ? candidate : node, under, candidate);
  }

  where() { // what is shown, as an address names it
    const { episode, spot } = this.part, node = episode.nodes[spot.place];
    const several = episode.nodes.filter((one) => one.node === node.node).length > 1;
    return { ...nameOf(episode), task: episode.task, node: node.node, agent: several ? node.agent : undefined,
      candidate: spot.candidate,
      beside: this.parts[1] ? address(nameOf(this.parts[1].episode)).slice(1) : undefined };
  }

  follow(event, where) {
    if (!isOwnClick(event)) return;
    event.preventDefault();
    this.open(where, where, true);
  }

  listed(top) { // the index changed: it is sorted or filtered
    if (!this.index) return;
    this.index.changed(top);
    if (this.part && this.index.place() >= 0) this.tellPosition();
  }

  // Where one is: counts of the moves, the line that is read out, the address.

  tellPosition() {
    const { episode, spot } = this.part, node = episode.nodes[spot.place];
    for (const [name, move] of Object.entries(MOVES)) {
      const on = move(episode, spot, 1);
      this.moves.set(name, on, move(episode, spot, -1).to !== undefined, on.to !== undefined);
    }
    const { now, count } = MOVES.candidate(episode, spot, 1);
    const parts = [this.index.status(), outcome(episode.success), `${node.agent}, turn ${node.turn}`,
      count > 1 && `candidate ${now} of ${count}`];
    this.say(parts.filter(Boolean).join(" · "));
    if (this.alone) replaceAddress(address(this.where()));
    const members = this.members(), next = groupMove(episode, spot, members, 1);
    this.moves.set("group", next, groupMove(episode, spot, members, -1).to, next.to);
  }

  members() {
    const { episode, spot } = this.part;
    const found = episode.nodes[spot.place].candidates.find((one) => one.index === spot.candidate);
    return this.source.members(episode, found.group);
  }

  say(text) {
    if (this.live.textContent !== text) this.live.textContent = text; // said once
  }

  // What keys and buttons do.

  async copyLink() {
    const fragment = address(this.where()), isFrame = location.protocol === "about:";
    const link = this.alone && !isFrame ? location.href.split("#")[0] + fragment : fragment;
    try { // a sandboxed frame may not write to the clipboard: then the link is shown
      await navigator.clipboard.writeText(link);
      this.say("The link is copied.");
    } catch { this.say(link); }
  }

  move(name, by) {
    const { episode, spot } = this.part;
    if (name === "group") return this.moveInGroup(by);
    const { to } = MOVES[name](episode, spot, by);
    if (to === undefined) return undefined;
    if (name === "candidate") return this.goto(this.part, spot.place, to.all[0].index);
    return this.goto(this.part, to, firstOf(episode.nodes[to]));
  }

  moveInGroup(by) {
    const { episode, spot } = this.part, { to } = groupMove(episode, spot, this.members(), by);
    if (!to) return;
    const where = { ...nameOf(episode), ...to }, { place, candidate } = spotOf(episode, to);
    const advantage = typeof to.advantage === "number" ? signed(to.advantage) : "unknown";
    if (to.episode === episode.name) this.goto(this.part, place, candidate);
    else if (this.source.has(where)) this.open(where, where);
    else this.say(`The next member is not on this page: ${to.episode}, candidate ${to.candidate}, advantage ${advantage}: ${to.said}`);
  }

  step(by) { // the next episode of the index
    const row = this.source.row(Math.max(0, this.index.place() + by));
    if (row) this.open(row);
  }

  failure() {
    const row = this.source.nextFailure(this.index.place());
    if (row) this.open(row);
    else this.say("No other failure in this list.");
  }

  setShade(name) {
    this.shade = name;
    this.most = mostOf(this.parts.map(({ episode }) => episode), name);
    for (const strip of this.columns.querySelectorAll(".strip")) shadeStrip(strip, name, this.most);
    this.legend.replaceChildren(...legendOf(name, this.most));
  }

  sideBySide(row = null) {
    const { episode, spot } = this.part;
    if (this.parts.length > 1 && !row) return this.render(episode, spot, null);
    // Another outcome first, then another step or run, then the nearest step.
    const far = (one) => [one.success === episode.success, one.step === episode.step && one.run === (episode.run || 0),
      Math.abs(one.step - episode.step)];
    const nearer = (one, other) => far(one).map((value, at) => value - far(other)[at]).find((value) => value !== 0) || 0;
    const [first] = row ? [row] : this.sameTask(episode).sort(nearer);
    if (!first) return this.say("Nothing else of this task is on this page.");
    return this.render(episode, spot, this.source.open(first));
  }

  sameTask(episode) {
    return this.source.sameTask({ ...nameOf(episode), task: episode.task });
  }

  picker(episode, other) { // which one stands beside
    const runs = this.data.runs || [], select = h("select", { "aria-label": "Beside it" });
    const label = (row) => [`${tick(row.success)} step ${row.step}`, runs.length > 1 && runs[row.run],
      row.episode !== row.task && row.episode];
    const rows = this.sameTask(episode);
    const option = (row) => h("option", { value: keyOf(row), selected: keyOf(row) === keyOf(nameOf(other)) },
      label(row).filter(Boolean).join(", "));
    select.append(...rows.map(option));
    select.addEventListener("change", () => this.sideBySide(rows[select.selectedIndex]));
    return h("div.picker", select, button("close", () => this.sideBySide(), { class: "plain" }));
  }

  markChanged(key) {
    const all = this.marks.all();
    this.saving.textContent = all.length ? `export ${counted(all.length, "mark")}` : "export marks";
    this.saving.disabled = !all.length;
    this.index.changed(false, key);
    this.showMark();
  }

  showMark() {
    if (!this.part) return;
    const key = keyOf(nameOf(this.part.episode)), has = this.marks.has(key);
    pressed(this.star, has);
    this.star.textContent = has ? "★" : "☆";
    if (document.activeElement !== this.note) this.note.value = this.marks.note(key);
  }

  pressed(event) {
    const { key, target } = event, isTyping = target.closest("input, textarea, select, [contenteditable]");
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || this.dialog.open || !this.part) return;
    if (isTyping) return key === "Escape" && target.blur();
    const moves = { ArrowRight: ["path", 1], ArrowLeft: ["path", -1], t: ["agent", 1], T: ["agent", -1],
      c: ["candidate", 1], C: ["candidate", -1], g: ["group", 1], G: ["group", -1] };
    const does = { "/": () => this.index.focus(), j: () => this.step(1), k: () => this.step(-1), f: () => this.failure(),
      m: () => this.marks.toggle(this.where()), n: () => this.note.focus(), s: () => this.sideBySide(),
      "?": () => this.dialog.showModal(), Escape: () => this.parts.length > 1 && this.sideBySide() };
    const act = does[key] || (moves[key] && (() => this.move(...moves[key])));
    if (!act) return;
    event.preventDefault();
    act();
  }
}

function mount(root, data, alone = false) {
  root.classList.add("viewer");
  const made = new Viewer(root, data, alone), opened = (alone && addressOf(location.hash)) || addressOf(data.at || "");
  (alone ? document : root).addEventListener("keydown", (event) => made.pressed(event));
  if (alone) addEventListener("hashchange", () => {
    const where = addressOf(location.hash);
    if (where) made.open(where, where);
  });
  if (opened) made.open(opened, opened);
  else if (data.episodes.length) made.open(made.source.first());
  return made;
}

const rolloutsRoot = document.getElementById("rollouts");
if (rolloutsRoot) {
  document.documentElement.classList.add("viewer-alone");
  mount(rolloutsRoot, JSON.parse(document.getElementById("data").textContent), true);
}
