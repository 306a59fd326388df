"use strict";
// What is shown, and where one is in it: the state of one viewer. `rollouts.js` puts it on a page.
((viewer) => {
  const {
    MOVES,
    address,
    addressOf,
    button,
    cardOf,
    cardsOf,
    element,
    groupMove,
    indexOf,
    keyOf,
    keysDialog,
    legend,
    marksOf,
    mostOf,
    movesOf,
    nameOf,
    outcome,
    paneOf,
    reveal,
    shadesOf,
    sourceOf,
    spotOf,
  } = viewer;

  class Viewer extends viewer.Acts {
    constructor(root, data, alone, signal) {
      super();
      Object.assign(this, { root, data, alone, parts: [], turn: null });
      this.shade = (data.shades || [])[0] || "surprise";
      this.marks = marksOf(data, () => this.markChanged());
      this.source = sourceOf(data, this.marks, (top) => this.listed(top), signal);
      this.context = {
        data,
        source: this.source,
        marks: this.marks,
        colors: data.agents,
        address,
        shade: () => this.shade,
        most: () => this.most,
        has: (where) => this.source.has(where),
        members: (episode, group) => this.source.members(episode.run || 0, episode.step, group),
        groupSize: (episode, group) => this.source.groupSize(episode.run || 0, episode.step, group),
        show: (where) => this.open(where, {}, true),
        follow: (event, where) => this.follow(event, where),
        gotoIn: (part, ...spot) => this.goto(part, ...spot),
      };
      this.build();
      root.replaceChildren(this.index.part, this.pane, this.dialog);
      this.markChanged();
      this.index.changed(true);
    }

    build() {
      this.index = indexOf(this.context);
      this.moves = movesOf((name, by) => this.move(name, by));
      this.legend = element("span", { class: "legend" });
      this.shading = (this.data.shades || []).length
        ? shadesOf(this.data.shades, this.shade, (name) => this.setShade(name), this.legend)
        : "";
      this.live = element("p", { class: "live quiet", role: "status" });
      this.dialog = keysDialog();
      this.note = element("input", {
        type: "text",
        class: "note",
        placeholder: "Note on this episode",
        "aria-label": "Note on this episode",
        onchange: () => this.marks.set(this.shown(), this.note.value),
      });
      this.star = button("☆", () => this.marks.toggle(this.shown()), {
        "aria-pressed": "false",
        title: "key m",
        "aria-label": "Mark",
        class: "marks",
      });
      this.both = button("side by side", () => this.sideBySide(), { "aria-pressed": "false", title: "key s" });
      this.saving = button("export marks", () => this.marks.save());
      const does = element(
        "div",
        { class: "does" },
        button("next failure", () => this.failure(), { title: "key f" }),
        this.both,
        button("link", () => this.copyLink(), { title: "copy a link to this spot" }),
        this.star,
        this.note,
        this.saving,
        button("?", () => this.dialog.showModal(), { "aria-label": "Keys", title: "Keys" }),
      );
      this.head = element("div", { class: "head" }, does, this.moves.part, this.live);
      this.columns = element("div", { class: "beside" });
      this.pane = element("section", { class: "pane", "aria-label": "Episode" }, this.head, this.shading, this.columns);
    }

    // An episode, and a spot in it.

    async open(wanted, spot = {}, brought = false) {
      const turn = (this.turn = {});
      let episode = null,
        other = null;
      if (!this.source.isHere(wanted)) this.say(`Reading ${wanted.episode} …`);
      try {
        episode = await this.source.open(wanted);
        if (spot.beside) other = await this.source.open(addressOf(spot.beside));
      } catch (trouble) {
        return this.say(trouble.message);
      }
      if (turn !== this.turn) return; // asked for another meanwhile
      if (!episode) {
        if (!this.part) await this.open(this.source.first());
        return this.say(`Episode ${wanted.episode} of step ${wanted.step} is not on this page.`);
      }
      this.render(episode, spotOf(episode, spot), other);
      if (spot.node) this.reveal();
      else if (brought) reveal(this.root, this.pane, 0);
    }

    render(episode, spot, other) {
      const all = [episode, other].filter(Boolean);
      this.most = mostOf(all, this.shade);
      this.parts = all.map((one, at) =>
        paneOf(this.context, one, this.source.rowOf(keyOf(nameOf(one))), at ? this.picker(one) : ""),
      );
      this.part = this.parts[0];
      this.columns.replaceChildren(...this.parts.map(({ part }) => part));
      this.root.classList.toggle("two", all.length > 1);
      this.both.setAttribute("aria-pressed", String(all.length > 1));
      this.legend.replaceChildren(...legend(this.shade, this.most));
      this.parts.forEach((part, at) => {
        part.spot = at ? spotOf(part.episode, {}) : spot;
        part.settle();
        part.mark(part.spot);
      });
      this.index.showCurrent(keyOf(nameOf(episode)));
      this.showMark();
      this.told();
    }

    goto(part, place, candidate, scroll) {
      part.spot = { place, candidate };
      const [article, card] = part.mark(part.spot);
      if (part === this.part) this.told();
      if (scroll) this.reveal(article, card, part);
    }

    reveal(article, card, part = this.part) {
      const [node, shown] = article ? [article, card] : part.mark(part.spot),
        cards = cardsOf(part.episode.nodes[part.spot.place]);
      const tall = shown.getBoundingClientRect().bottom - node.getBoundingClientRect().top > part.part.clientHeight;
      const first = cardOf(part.episode.nodes[part.spot.place], part.spot.candidate) === cards[0];
      const moves = this.moves.part,
        under = getComputedStyle(moves).position === "sticky" ? moves.offsetHeight + 8 : 0;
      reveal(part.part, tall && !first ? shown : node, under, shown);
    }

    shown() {
      // what is shown, as an address names it
      const { episode, spot } = this.part,
        node = episode.nodes[spot.place];
      const several = episode.nodes.filter((one) => one.node === node.node).length > 1;
      const beside = this.parts[1] ? address(nameOf(this.parts[1].episode)).slice(1) : undefined;
      return {
        ...nameOf(episode),
        task: episode.task,
        node: node.node,
        agent: several ? node.agent : undefined,
        candidate: spot.candidate,
        beside,
      };
    }

    follow(event, where) {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return; // the browser's own: another tab
      event.preventDefault();
      this.open(where, where, true);
    }

    listed(top) {
      // the kernel's index came, or another window of it
      if (!this.index) return;
      this.index.changed(top);
      if (this.part && this.index.place() >= 0) this.told();
    }

    // Where one is: counts of the moves, the line that is read out, the address.

    told() {
      const { episode, spot } = this.part,
        node = episode.nodes[spot.place],
        counts = {};
      for (const [name, move] of Object.entries(MOVES)) {
        const on = move(episode, spot, 1);
        this.moves.set(name, on, move(episode, spot, -1).to !== undefined, on.to !== undefined);
        counts[name] = on;
      }
      const { now, count } = counts.candidate;
      this.say(
        [
          this.index.told(),
          outcome(episode.success),
          `${node.agent}, turn ${node.turn}`,
          count > 1 ? `candidate ${now} of ${count}` : "",
        ]
          .filter(Boolean)
          .join(" · "),
      );
      if (this.alone)
        try {
          history.replaceState(null, "", address(this.shown()));
        } catch {
          /* a sandboxed frame has no address */
        }
      this.toldGroup();
    }

    async toldGroup() {
      const { part } = this,
        { episode, spot } = part;
      const members = await this.members();
      if (part !== this.part || spot !== part.spot) return;
      const on = groupMove(episode, spot, members, 1);
      this.moves.set("group", on, groupMove(episode, spot, members, -1).to, on.to);
    }

    async members() {
      const { episode, spot } = this.part;
      const found = cardOf(episode.nodes[spot.place], spot.candidate).all.find((one) => one.index === spot.candidate);
      try {
        return await this.source.members(episode.run || 0, episode.step, found.group);
      } catch {
        return [];
      }
    }

    say(text) {
      if (this.live.textContent !== text) this.live.textContent = text; // said once
    }
  }

  Object.assign(viewer, { Viewer });
})(MasLabRollouts);
