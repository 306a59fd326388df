"use strict";
// Moves within an episode. A spot is (place of a node, number of a candidate); equal candidates stand on one card.
((viewer) => {
  const known = new WeakMap();

  // Does what stands after `parent` follow this action? Where joint actions are crossed, `0-*` took part in `0-1`.
  function follows(parent, action) {
    if (parent === action) return true;
    const [one, other] = [parent, action].map((name) => [
      name.slice(0, name.lastIndexOf(".")),
      name.slice(name.lastIndexOf(".") + 1).split("-"),
    ]);
    return (
      parent !== "" &&
      one[0] === other[0] &&
      one[1].length === other[1].length &&
      one[1].every((part, seat) => part === other[1][seat] || other[1][seat] === "*")
    );
  }

  function cardsOf(node) {
    // equal completions merged, the kept one first
    if (known.has(node)) return known.get(node);
    const alike = new Map();
    for (const one of node.candidates) {
      const text = JSON.stringify([one.said, one.valid, one.finish]);
      if (!alike.has(text)) alike.set(text, []);
      alike.get(text).push(one);
    }
    const cards = [...alike.values()].map((all) => {
      const kept = all.some((one) => one.kept);
      return { all: kept ? [...all].sort((one, other) => other.kept - one.kept) : all, kept };
    });
    cards.sort((one, other) => other.kept - one.kept);
    known.set(node, cards);
    return cards;
  }

  const cardOf = (node, candidate) =>
    cardsOf(node).find(({ all }) => all.some((one) => one.index === candidate)) || cardsOf(node)[0];
  const firstOf = (node) => cardsOf(node)[0].all[0].index;

  // The one way through the episode that leads over a spot: from the start to it, then on through what was followed.
  function pathOf({ nodes }, { place, candidate }) {
    const of = (name) => nodes.flatMap((node, at) => (node.node === name ? [at] : []));
    const saying = (action) => nodes.find((node) => node.candidates.some((one) => follows(action, one.action)));
    const names = [nodes[place].node];
    for (let parent = nodes[place].parent; parent;) {
      const before = saying(parent);
      if (!before || names.includes(before.node)) break;
      names.unshift(before.node);
      parent = before.parent;
    }
    let chosen = cardOf(nodes[place], candidate).all;
    for (let after; ; chosen = after.candidates) {
      const last = names[names.length - 1];
      const options = nodes.filter((node) => node.node === last).flatMap((node) => node.candidates);
      const kept = options.filter((one) => one.kept),
        ways = [...chosen, ...kept, ...options].map((one) => one.action);
      const next = ways.map((action) => nodes.find((node) => follows(node.parent, action))).find(Boolean);
      after = next;
      if (!after || names.includes(after.node)) break;
      names.push(after.node);
    }
    return names.flatMap(of);
  }

  function beside(all, at, by) {
    // {now, count, to}: where one is among them, and who is next
    const now = all.indexOf(at);
    return { now: now + 1, count: all.length, to: now < 0 ? undefined : all[now + by] };
  }

  const MOVES = {
    path: (episode, spot, by) => beside(pathOf(episode, spot), spot.place, by),
    agent: (episode, spot, by) => {
      const { agent } = episode.nodes[spot.place];
      return beside(
        pathOf(episode, spot).filter((at) => episode.nodes[at].agent === agent),
        spot.place,
        by,
      );
    },
    candidate: (episode, spot, by) => {
      const node = episode.nodes[spot.place],
        cards = cardsOf(node);
      return beside(cards, cardOf(node, spot.candidate), by);
    },
  };

  const isMember = (member, episode, node, index) =>
    member.episode === episode.name &&
    member.node === node.node &&
    member.agent === node.agent &&
    member.candidate === index;

  // Members of the comparison group, without those that stand on the same card as the one shown.
  function groupMove(episode, spot, members, by) {
    const node = episode.nodes[spot.place],
      same = cardOf(node, spot.candidate).all.map((one) => one.index);
    const now = members.findIndex((one) => isMember(one, episode, node, spot.candidate));
    let at = now + by;
    while (members[at] && same.some((index) => isMember(members[at], episode, node, index))) at += by;
    return { now: now + 1, count: members.length, to: now < 0 ? undefined : members[at] };
  }

  function spotOf(episode, { node, agent, candidate }) {
    // as an address names it
    const fits = (one) => one.node === node && (!agent || one.agent === agent);
    const place = Math.max(0, episode.nodes.findIndex(fits));
    const found = episode.nodes[place],
      has = found.candidates.some((one) => one.index === candidate);
    return { place, candidate: has ? candidate : firstOf(found) };
  }

  Object.assign(viewer, { follows, cardsOf, cardOf, firstOf, MOVES, groupMove, isMember, spotOf });
})(MasLabRollouts);
