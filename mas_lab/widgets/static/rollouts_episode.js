"use strict";
// An episode as a column: its outcome and name, its tree at a glance, and its nodes with what was heard and said.

// Moves within it. A spot is {place of a node, candidate's number}; equal candidates stand on one card.

// Does what stands after `parent` follow this action? Where joint actions are crossed, `0-*` took part in `0-1`.
function follows(parent, action) {
  if (parent === action) return true;
  const [one, other] = [parent, action].map((name) =>
    [name.slice(0, name.lastIndexOf(".")), name.slice(name.lastIndexOf(".") + 1).split("-")]);
  const fits = (part, seat) => part === other[1][seat] || other[1][seat] === "*";
  return parent !== "" && one[0] === other[0] && one[1].length === other[1].length && one[1].every(fits);
}

const knownCards = new WeakMap();

function cardsOf(node) { // equal completions merged, the kept one first
  if (!knownCards.has(node)) {
    const equal = Map.groupBy(node.candidates, (one) => JSON.stringify([one.said, one.valid, one.flaw, one.finish]));
    const cards = [...equal.values()].map((all) =>
      ({ all: [...all].sort((a, b) => b.kept - a.kept), kept: all.some((one) => one.kept) }));
    knownCards.set(node, cards.sort((one, other) => other.kept - one.kept));
  }
  return knownCards.get(node);
}

const cardOf = (node, candidate) => cardsOf(node).find(({ all }) => all.some((one) => one.index === candidate))
  || cardsOf(node)[0];
const firstOf = (node) => cardsOf(node)[0].all[0].index;

// The one way through the episode that leads over a spot: from the start to it, then on through what was followed.
function pathOf({ nodes }, { place, candidate }) {
  const names = [nodes[place].node];
  const before = (parent) => nodes.find((node) => parent && node.candidates.some((one) => follows(parent, one.action)));
  let parent = before(nodes[place].parent);
  for (; parent && !names.includes(parent.node); parent = before(parent.parent)) names.unshift(parent.node);
  for (let chosen = cardOf(nodes[place], candidate).all; ;) {
    const options = nodes.filter((node) => node.node === names.at(-1)).flatMap((node) => node.candidates);
    const ways = [...chosen, ...options.filter((one) => one.kept), ...options];
    const after = ways.map(({ action }) => nodes.find((node) => follows(node.parent, action))).find(Boolean);
    if (!after || names.includes(after.node)) break;
    names.push(after.node);
    chosen = after.candidates;
  }
  return names.flatMap((name) => nodes.flatMap((node, at) => (node.node === name ? [at] : [])));
}

function amongst(all, at, by) { // {now, count, to}: where one is among them, and who is next
  const now = all.indexOf(at);
  return { now: now + 1, count: all.length, to: now < 0 ? undefined : all[now + by] };
}

const MOVES = {
  path: (episode, spot, by) => amongst(pathOf(episode, spot), spot.place, by),
  agent(episode, spot, by) {
    const isOwn = (at) => episode.nodes[at].agent === episode.nodes[spot.place].agent;
    return amongst(pathOf(episode, spot).filter(isOwn), spot.place, by);
  },
  candidate(episode, spot, by) {
    const node = episode.nodes[spot.place];
    return amongst(cardsOf(node), cardOf(node, spot.candidate), by);
  },
};

const isMember = (member, episode, node, index) =>
  member.episode === episode.name && member.node === node.node && member.agent === node.agent && member.candidate === index;

// Members of the comparison group, without those that stand on the same card as the one shown.
function groupMove(episode, spot, members, by) {
  const node = episode.nodes[spot.place], same = cardOf(node, spot.candidate).all.map((one) => one.index);
  const now = members.findIndex((one) => isMember(one, episode, node, spot.candidate));
  let at = now + by;
  while (members[at] && same.some((index) => isMember(members[at], episode, node, index))) at += by;
  return { now: now + 1, count: members.length, to: now < 0 ? undefined : members[at] };
}

function spotOf(episode, { node, agent, candidate }) { // as an address names it
  const place = Math.max(0, episode.nodes.findIndex((one) => one.node === node && (!agent || one.agent === agent)));
  const found = episode.nodes[place], has = found.candidates.some((one) => one.index === candidate);
  return { place, candidate: has ? candidate : firstOf(found) };
}

// Numbers of candidates and tokens.

const average = (all) => (all.length ? all.reduce((sum, one) => sum + one, 0) / all.length : null);

function advantageOf(candidate) {
  const own = candidate.numbers.advantage;
  return typeof own === "number" ? own : average((candidate.shades && candidate.shades.advantage) || []);
}

const meanOf = (card) => average(card.all.map(advantageOf).filter(known));
const largestOf = ({ nodes }) =>
  nodes.flatMap((node) => node.candidates).reduce((most, one) => Math.max(most, Math.abs(advantageOf(one) || 0)), 0);

const SHADES = {
  surprise: { says: "−log p of each when it was sampled", unit: " nats", tell: decimal },
  entropy: { says: "entropy of the policy at each", unit: " nats", tell: decimal },
  advantage: { says: "made more likely: yellow, less likely: grey", unit: "", tell: signed, both: true },
  share: { says: "of the gradient, along it: yellow, against it: grey", unit: "",
    tell: (value) => `${signed(100 * value)} %`, both: true },
};

function mostOf(episodes, shade) { // the largest size of a number, over all tokens of what is shown
  const all = episodes.flatMap(({ nodes }) =>
    nodes.flatMap(({ candidates }) => candidates.flatMap((one) => one.shades[shade] || [])));
  return all.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0);
}

function legendOf(shade, most) {
  const { says, unit, tell, both } = SHADES[shade];
  const ramp = h(both ? "span.ramp.both" : "span.ramp", { "aria-hidden": "true" });
  return [h("span.quiet", `tokens by ${shade}`), h("span.ends", h("span", both ? tell(-most) : "0"), ramp, h("span", tell(most) + unit)), h("span.says", says)];
}

const shadesOfToken = ({ shades, ids }, t) =>
  [`id ${ids[t]}`, ...Object.keys(shades).filter((name) => SHADES[name] && known(shades[name][t]))
  .map((name) => `${name} ${SHADES[name].tell(shades[name][t])}`)].join(", ");

const strips = new WeakMap();

function shadedStrip(candidate, shade, most) {
  const made = stripOf("tokens", candidate.tokens, (t) => shadesOfToken(candidate, t));
  strips.set(made, candidate);
  shadeStrip(made, shade, most);
  return made;
}

function shadeStrip(made, shade, most) {
  const values = strips.get(made).shades[shade] || [];
  [...made.children].forEach((token, t) => shadeToken(token, values[t], most));
}

// The tree at a glance: a column per step of the environment, a circle per candidate, the kept way a thick line.

const SIZE = { dot: 8, row: 21, head: 17, gap: 12, edge: 12 };
const READS = "Circle: a candidate, its number how many are alike; thick: kept; yellow: advantage above 0, grey: below.";
const shortened = (name, most = 14) => (name.length > most ? name.slice(0, most - 1) + "…" : name);
const labelOf = (node) => `${shortened(node.agent)} ${node.turn}`;
const candidatesIn = (node) => counted(node.candidates.length, "candidate")
  + (cardsOf(node).length < node.candidates.length ? `, ${cardsOf(node).length} different` : "");

function placedTree({ nodes }) { // x by depth, one below another where several share it
  const slot = (node, at) => nodes.slice(0, at).filter((one) => one.node === node.node).length;
  const columns = nodes.map((node, at) => node.depth * 1000 + slot(node, at)); // who acts at the same time stands side by side
  const depths = [...new Set(columns)].sort((one, other) => one - other), heights = new Map();
  const step = Math.max(62, Math.min(124, Math.max(...nodes.map((node) => labelOf(node).length)) * 6.6 + 14));
  const blocks = nodes.map((node, place) => {
    const at = columns[place], y = heights.get(at) || 0, cards = cardsOf(node);
    heights.set(at, y + SIZE.head + cards.length * SIZE.row + SIZE.gap);
    return { node, place, cards, x: SIZE.edge + depths.indexOf(at) * step, y };
  });
  return { blocks, step, width: SIZE.edge * 2 + depths.length * step, height: Math.max(...heights.values()) - SIZE.gap + 4 };
}

const dotAt = (block, card) => [block.x + SIZE.dot, block.y + SIZE.head + block.cards.indexOf(card) * SIZE.row + SIZE.dot + 2];

function edgesOf({ blocks }) {
  const path = new Set(blocks.filter(({ node }) => !node.parent).map(({ node }) => node.node));
  const leads = blocks.filter(({ node }, at) =>
    !blocks.slice(0, at).some((one) => one.node.node === node.node)); // one of who acts together
  return leads.flatMap((block) => {
    const all = block.node.candidates, isChosen = all.length === 1 || !all.every((one) => one.kept);
    return block.cards.flatMap((card) => leads.filter(({ node }) =>
      card.all.some((one) => follows(node.parent, one.action))).map((next) => {
      const isThick = card.kept && isChosen && path.has(block.node.node);
      if (isThick) path.add(next.node.node);
      const [x, y] = dotAt(block, card), [to, down] = dotAt(next, next.cards[0]), half = (x + to) / 2;
      const d = `M${x + SIZE.dot},${y} C${half},${y} ${half},${down} ${to - SIZE.dot},${down}`;
      return svg("path", { d, class: isThick ? "way kept" : "way" });
    }));
  });
}

function dotOf(block, card, most, color, choose) {
  const [cx, cy] = dotAt(block, card), candidate = card.all[0], advantage = meanOf(card), many = card.all.length;
  const label = [`candidate ${candidate.index}`, card.kept && "kept", known(advantage) && `advantage ${signed(advantage)}`,
    many > 1 && `${many} alike`];
  const circle = (kind) => svg(`circle.${kind}`, { cx, cy, r: SIZE.dot });
  const ring = circle("ring"), fill = circle(advantage < 0 ? "fill.below" : "fill.above");
  fill.style.setProperty("--part", most && advantage ? Math.abs(advantage) / most : 0);
  ring.style.stroke = color;
  const onclick = (event) => { event.stopPropagation(); choose(block.place, candidate.index); };
  return svg("g", { class: card.kept ? "dot kept" : "dot", "data-index": candidate.index, onclick },
    svg("title", label.filter(Boolean).join(", ")),
    circle("ground"), fill, ring, many > 1 ? svg("text.many", { x: cx, y: cy + 4 }, String(many)) : "");
}

function treeOf(episode, colors, choose) {
  const plan = placedTree(episode), most = largestOf(episode);
  const blocks = plan.blocks.map((block) => {
    const { node, place, cards, x, y } = block, label = `${node.agent}, turn ${node.turn}, ${candidatesIn(node)}`;
    const onclick = () => choose(place, firstOf(node));
    const onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); onclick(); } };
    return svg("g.block", { role: "button", tabindex: "-1", "aria-label": label, "data-place": place, onclick, onkeydown },
      svg("rect.hit", { x: x - 5, y, width: plan.step - 4, height: SIZE.head + cards.length * SIZE.row, rx: 4 }),
        svg("title", label),
      svg("text.label", { x, y: y + 12 }, labelOf(node)),
        cards.map((card) => dotOf(block, card, most, colors[node.agent] || "var(--quiet)", choose)));
  });
  const picture = svg("svg.overview", { width: plan.width, height: plan.height, role: "group",
    "aria-label": "Overview of the episode" }, edgesOf(plan), blocks);
  return h("div.tree", picture, h("p.quiet.reads", READS));
}

function markInTree(tree, place, card) { // marks where one is, and brings it into view sideways
  for (const block of tree.querySelectorAll(".block")) {
    const now = Number(block.dataset.place) === place;
    block.setAttribute("tabindex", now ? "0" : "-1");
    if (now) block.setAttribute("aria-current", "true");
    else block.removeAttribute("aria-current");
    for (const one of block.querySelectorAll(".dot")) one.classList.toggle("now",
      now && card.all.some(({ index }) => String(index) === one.dataset.index));
    if (!now) continue;
    const [x, width] = ["x", "width"].map((name) => Number(block.querySelector(".hit").getAttribute(name)));
    if (x < tree.scrollLeft) tree.scrollLeft = x - 8;
    else if (x + width > tree.scrollLeft + tree.clientWidth) tree.scrollLeft = x + width - tree.clientWidth + 8;
  }
}

// One candidate: what was said, what it earned, its tokens, and whom it was compared with.

const shortNumber = (value) => (typeof value === "number" ? decimal(value, 4).replace(/\.?0+$/, "") : String(value));

function tokensOf(candidate, made, context) {
  const region = h("div.tokens"), unfold = button(counted(candidate.tokens.length, "token"), () => toggle(region.hidden),
    { class: "plain unfold" });
  const isReadable = candidate.tokens.some((text, t) =>
    text !== `#${candidate.ids[t]}`); // then they replace the completion
  function toggle(open) {
    if (open && !region.children.length) region.append(shadedStrip(candidate, context.shade(), context.most()),
      isReadable ? "" : h("p.quiet", "These are token ids. RolloutViewer(…, team=team) shows their text."));
    region.hidden = !open;
    unfold.setAttribute("aria-expanded", String(open));
    made.classList.toggle("instead", open && isReadable);
    if (open) scrollable(made);
  }
  toggle(Boolean(candidate.tell));
  return [unfold, region];
}

function membersOf(context, episode, node, candidate) { // who was compared with it, folded
  if (!candidate.group) return null;
  const size = candidate.compared ?? context.source.groupSize(episode, candidate.group);
  const who = size > 1 ? counted(size - 1, "other") : size === 1 ? "nobody" : "its group";
  const label = (listed) => (listed < size ? `of its ${size} rows the ${listed} with the largest advantages`
    : "the advantage of each");
  return folded(h("summary", { title: `group ${candidate.group}` }, `compared with ${who}`), async () => {
    const all = context.source.members(episode, candidate.group);
    if (!all.length) return h("p.quiet", "Its members are not on this page.");
    const most = Math.max(0, ...all.map(({ advantage }) => Math.abs(advantage) || 0));
    const lines = all.map((one) => memberOf(context, episode, isMember(one, episode, node, candidate.index), one, most));
    return [h("p.quiet", `Group ${candidate.group}, ${label(all.length)}:`), h("ul.members", lines)];
  }, "details.group");
}

function memberOf(context, episode, isHere, one, most) {
  const where = { run: episode.run, step: episode.step, ...one }, isNumber = typeof one.advantage === "number";
  const at = one.episode === episode.name ? `node ${one.node.replace(`${one.episode}/`, "")}` : one.episode,
    name = `${at}, candidate ${one.candidate}`;
  const onclick = (event) => context.follow(event, where);
  const link = context.source.has(where) ? h("a",
    { href: address(where), "aria-current": isHere ? "true" : null, onclick }, name)
    : h("span.quiet", { title: "not on this page" }, name);
  return h("li", { class: isHere ? "here" : null }, h("span.value", isNumber ? signed(one.advantage) : ""),
    leaning(isNumber ? one.advantage : 0, most),
    h("span.who", swatch(context.data.agents[one.agent]), link), h("span.text", one.said));
}

function candidateOf(context, episode, node, place, card) {
  const candidate = card.all[0], advantage = meanOf(card),
    kept = card.kept && node.candidates.some((one) => !one.kept); // where all were kept, none was chosen
  const isUnlike = card.all.some((one) => advantageOf(one) !== advantageOf(candidate)); // alike in words, not in what they earned
  const made = h(kept ? "div.candidate.kept" : "div.candidate",
    { role: "group", "data-index": candidate.index, "aria-label": `candidate ${candidate.index}${kept ? ", kept" : ""}` });
  const flags = [candidate.valid ? "" : "not understood", candidate.flaw, candidate.finish === "length" ? "cut off" : ""].filter(Boolean);
  const same = `candidates ${card.all.map((one) => one.index).join(", ")} are word for word the same`;
  const [unfold, region] = candidate.tokens.length ? tokensOf(candidate, made, context) : [];
  const advantages = known(advantage) ? [h("span.quiet", isUnlike ? "mean advantage" : "advantage"),
    h("b", signed(advantage)), leaning(advantage, context.largest)] : [];
  const fact = (name, value) => h("span.fact", `${name} `, h("b", value));
  // The advantage stands at the top, and a temperature of 1 says nothing.
  const isBelow = ([name, value]) => (name === "advantage" ? typeof value !== "number" : name !== "temperature" || value !== 1);
  const facts = Object.entries(candidate.numbers).filter(isBelow).map(([name, value]) =>
    fact(name.replaceAll("_", " "), shortNumber(value)));
  const next = episode.nodes.findIndex((after) => card.all.some((one) => follows(after.parent, one.action)));
  const goOn = next >= 0 && button("what followed →", () => context.goto(next, firstOf(episode.nodes[next])),
    { class: "plain" });
  made.append(
    h("header", h("strong", kept ? "✓ kept" : `candidate ${candidate.index}`),
      card.all.length > 1 ? h("span.alike", { title: same }, `×${card.all.length}`) : "",
      kept ? h("span.quiet", `candidate ${candidate.index}`) : "", flags.map((flag) => h("span.flag", flag)),
        h("span.earned", unfold, advantages)),
    h("pre.said", candidate.said || "(nothing)"), region || "", h("div.facts", facts, goOn || ""),
    ...(isUnlike ? [h("div.facts", card.all.map((one) => fact(`candidate ${one.index}`, signed(advantageOf(one)))))] : []),
    ...(candidate.info ? [h("details.told", h("summary", "the world told"), h("pre.said", candidate.info))] : []),
    membersOf(context, episode, node, candidate) || "");
  made.addEventListener("click", (event) => {
    if (!event.target.closest("button, a, summary, pre, input, .table") && !String(getSelection())) context.goto(place,
      candidate.index, false);
  });
  return made;
}

function scrollable(pane) { // what scrolls by itself can be reached by keyboard
  for (const one of pane.querySelectorAll("pre.said:not([tabindex]), .strip:not([tabindex])")) {
    if (one.scrollHeight <= one.clientHeight + 1) continue;
    one.setAttribute("tabindex", "0");
    if (one.classList.contains("strip")) continue;
    one.setAttribute("role", "group");
    one.setAttribute("aria-label", one.classList.contains("heard") ? "what was heard" : "what was said");
  }
}

// A node: what the agent heard, its candidates.

function workedOf({ worked }) { // a chain of digits, as its task reads it
  return worked.length ? h("p.quiet", "Read from left to right, each result modulo 10 (its last digit): ",
    worked.slice(0, -1).join(" → "), " → ", h("b", String(worked.at(-1)))) : "";
}

function nodeOf(context, episode, node, place) {
  const color = context.data.agents[node.agent], length = node.heard.length;
  const heard = h("details.hears", { open: length <= 600 },
    h("summary", "heard", h("span.quiet", ` ${counted(length, "character")}`)), h("pre.said.heard", node.heard || "(nothing)"));
  const made = h("article.node", { tabindex: "-1", "data-place": place },
    h("div.title", h("h3", swatch(color), node.agent, h("span.quiet", ` turn ${node.turn}`)),
      h("span.quiet", `environment step ${node.depth}, ${candidatesIn(node)}`)),
    h("div.given", heard, workedOf(node)),
    cardsOf(node).map((card) => candidateOf(context, episode, node, place, card)));
  made.style.setProperty("--agent", color || "var(--quiet)");
  return made;
}

function headOf(data, episode, row, extra) {
  const runs = data.runs || [], run = episode.run || 0, missed = episode.success === false ? "outcome missed" : "outcome";
  const facts = [runs.length > 1 && (new Set(runs).size < runs.length ? `${run}: ${runs[run]}` : runs[run]),
    `step ${episode.step}`,
    row && known(row.return) && `return ${decimal(row.return)}`, row && counted(row.rows, "row"),
      row && counted(row.tokens, "token"),
    episode.name !== episode.task && `episode ${episode.name}`];
  return h("div.named", h("h2", h("span", { class: missed, title: outcome(episode.success) }, tick(episode.success),
    h("span.unseen", ` ${outcome(episode.success)}: `)), episode.task || episode.name),
      h("p.quiet", facts.filter(Boolean).join(" · ")), extra);
}

// The column of an episode; `goto(part, place, candidate, scroll)` is what a press does. Two of them stand side by side.
function paneOf(context, episode, row, extra) {
  const part = { episode }, go = (place, candidate, scroll = true) => context.goto(part, place, candidate, scroll);
  const own = { ...context, largest: largestOf(episode), goto: go }, tree = treeOf(episode, context.data.agents, go);
  const nodes = h("div.nodes", episode.nodes.map((node, place) => nodeOf(own, episode, node, place)));
  part.part = h("div.column", headOf(context.data, episode, row, extra), tree, nodes);
  part.mark = (spot) => { // shows where one is, and returns the node's and the candidate's elements
    const card = cardOf(episode.nodes[spot.place], spot.candidate);
    markInTree(tree, spot.place, card);
    for (const one of nodes.querySelectorAll(".now")) one.classList.remove("now");
    const article = nodes.querySelector(`article[data-place="${spot.place}"]`);
    const candidate = article.querySelector(`.candidate[data-index="${card.all[0].index}"]`);
    for (const one of [article, candidate]) one.classList.add("now");
    return [article, candidate];
  };
  return part;
}
