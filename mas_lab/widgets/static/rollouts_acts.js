"use strict";
// What is done with an episode that is shown: moves, shades, another beside it, marks. `Viewer` has the state.
((viewer) => {
  const {
    MOVES,
    address,
    button,
    copy,
    counted,
    element,
    firstOf,
    groupMove,
    keyOf,
    legend,
    mostOf,
    reshade,
    signed,
    spotOf,
    tick,
  } = viewer;
  const nameOf = (episode) => ({ run: episode.run || 0, step: episode.step, episode: episode.name });

  class Acts {
    async copyLink() {
      const fragment = address(this.shown()),
        frame = location.protocol === "about:";
      const link = this.alone && !frame ? location.href.split("#")[0] + fragment : fragment;
      this.say((await copy(link)) ? "The link is copied." : link);
    }

    async move(name, by) {
      const { episode, spot } = this.part;
      if (name === "group") return this.moveInGroup(by);
      const { to } = MOVES[name](episode, spot, by);
      if (to === undefined) return;
      if (name === "candidate") this.goto(this.part, spot.place, to.all[0].index, true);
      else this.goto(this.part, to, firstOf(episode.nodes[to]), true);
    }

    async moveInGroup(by) {
      const { episode, spot } = this.part,
        { to } = groupMove(episode, spot, await this.members(), by);
      if (!to) return;
      const where = { ...nameOf(episode), ...to };
      if (to.episode === episode.name) {
        const { place, candidate } = spotOf(episode, to);
        this.goto(this.part, place, candidate, true);
      } else if (this.source.has(where)) this.open(where, where);
      else
        this.say(
          `The next member is not on this page: ${to.episode}, candidate ${to.candidate}, ` +
            `advantage ${typeof to.advantage === "number" ? signed(to.advantage) : "unknown"}: ${to.said}`,
        );
    }

    step(by) {
      // the next episode of the index
      const place = this.index.place(),
        row = this.source.row(Math.max(0, place + by));
      if (row) this.open(row);
    }

    async failure() {
      const row = await this.source.nextFailure(this.index.place());
      if (row) this.open(row);
      else this.say("No other failure in this list.");
    }

    setShade(name) {
      this.shade = name;
      this.most = mostOf(
        this.parts.map(({ episode }) => episode),
        name,
      );
      reshade(this.columns, name, this.most);
      this.legend.replaceChildren(...legend(name, this.most));
    }

    // Side by side.

    async sideBySide(row = null) {
      if (this.parts.length > 1 && !row) return this.render(this.part.episode, this.part.spot, null);
      const { episode } = this.part,
        own = nameOf(episode);
      const far = (one) => [
        one.success === episode.success,
        one.step === own.step && one.run === own.run,
        Math.abs(one.step - own.step),
      ];
      try {
        const rows = row ? [row] : await this.source.sameTask({ ...own, task: episode.task });
        rows.sort(
          (one, other) =>
            far(one)
              .map((value, at) => value - far(other)[at])
              .find((value) => value !== 0) || 0,
        );
        if (!rows.length) return this.say("Nothing else of this task is on this page.");
        this.render(episode, this.part.spot, await this.source.open(rows[0]));
      } catch (trouble) {
        this.say(trouble.message);
      }
    }

    picker(other) {
      // which one stands beside
      const own = nameOf(this.parts[0] ? this.parts[0].episode : other),
        runs = this.data.runs || [];
      const select = element("select", { "aria-label": "Beside it" });
      const told = (row) =>
        [
          `${tick(row.success)} step ${row.step}`,
          runs.length > 1 ? runs[row.run] : "",
          row.episode === row.task ? "" : row.episode,
        ]
          .filter(Boolean)
          .join(", ");
      const here = keyOf(nameOf(other));
      this.source.sameTask({ ...own, task: other.task }).then(
        (rows) => {
          const all = new Map(rows.map((row) => [keyOf(row), row]));
          select.append(
            ...rows.map((row) => element("option", { value: keyOf(row), selected: keyOf(row) === here }, told(row))),
          );
          select.addEventListener("change", () => this.sideBySide(all.get(select.value)));
        },
        () => {},
      );
      return element(
        "div",
        { class: "picker" },
        select,
        button("close", () => this.sideBySide(), { class: "plain" }),
      );
    }

    // Marks.

    markChanged() {
      const { count } = this.marks;
      this.saving.textContent = count ? `export ${counted(count, "mark")}` : "export marks";
      this.saving.title = "as a table, CSV";
      this.saving.disabled = !count;
      this.source.tellMarks(this.marks.all());
      this.index.redraw();
      this.showMark();
    }

    showMark() {
      if (!this.part) return;
      const key = keyOf(nameOf(this.part.episode)),
        has = this.marks.has(key);
      this.star.setAttribute("aria-pressed", String(has));
      this.star.textContent = has ? "★" : "☆";
      if (document.activeElement !== this.note) this.note.value = this.marks.note(key);
    }
  }

  Object.assign(viewer, { Acts, nameOf });
})(MasLabRollouts);
