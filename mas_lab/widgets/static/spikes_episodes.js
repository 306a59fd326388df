"use strict";
// The episode of a sample, in a RolloutViewer below the anatomy; or a link to it in the page of one.
((spikes) => {
  const { element, button } = spikes;
  const { address, addressOf, mount } = MasLabRollouts;

  function episodesOf(data, bring) {
    const held = data.rollouts, key = (step, episode) => JSON.stringify([Number(step), episode]);
    const known = new Set(held ? held.episodes.map((one) => key(one.step, one.name)) : []);
    const heading = element("h2", { id: "episode", tabindex: "-1" }, "The episode of a sample");
    const root = element("div", {});
    const section = element("section", { id: "episodes", "aria-labelledby": "episode", hidden: "" }, root);
    let viewer = null, from = null;

    function open(where) {
      section.hidden = false;
      if (viewer) viewer.open(where, where);
      else viewer = mount(root, { ...held, at: address(where) });
      bring(heading);
    }

    function back() {
      const own = from && from.isConnected ? from : document.getElementById("opened");
      own.scrollIntoView({ block: "center" });
      own.focus({ preventScroll: true });
    }

    function follow(event, where) {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return; // the browser's own: another tab
      event.preventDefault();
      from = event.currentTarget;
      try { history.replaceState(null, "", address(where)); } catch { /* a frame in a notebook has no address */ }
      open(where);
    }

    function linkTo(spike, sample, agent) {
      if (!sample.at || !(data.page || known.has(key(spike.step, sample.at.episode)))) return null;
      const where = { step: spike.step, ...sample.at, agent, candidate: Number(sample.at.candidate || 0) };
      const told = `Sample ${sample.row} in its episode`;
      const link = data.page ? element("a", { href: data.page + address(where) }, told)
        : element("a", { href: address(where), onclick: (event) => follow(event, where) }, told, " ↓");
      return element("p", { class: "into" }, link);
    }

    function start() { // where the page's own address names an episode
      const go = () => {
        const where = addressOf(location.hash);
        if (where && known.has(key(where.step, where.episode))) open(where);
      };
      if (!held) return;
      addEventListener("hashchange", go);
      go();
    }

    section.prepend(element("div", { class: "heading" }, heading, button("↑ back to the sample", back)));
    return { section, linkTo, start };
  }

  Object.assign(spikes, { episodesOf });
})(MasLabSpikes);
