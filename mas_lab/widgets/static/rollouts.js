"use strict";
// Walks the episodes of #data. All text goes through textContent: nothing a model wrote is ever read as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.getElementById("rollouts");
  let current = 0;

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "onclick" || name === "onchange") made[name] = value;
      else if (value !== null) made.setAttribute(name, value);
    }
    for (const child of children) made.append(child);
    return made;
  }

  const toward = (full, part) => `rgb(${full.map((channel) => Math.round(255 - (255 - channel) * part)).join(",")})`;
  const shade = (part) => toward([255, 159, 0], part);
  const outcome = (episode) => (episode.success === null ? "" : episode.success ? " ✓ reached the goal" : " ✗ missed the goal");
  const steps = [...new Set(data.episodes.map((episode) => episode.step))];

  function choices(values, label, chosen, onchange) {
    const select = element("select", { "aria-label": label, onchange });
    for (const [value, text] of values) {
      const option = element("option", { value }, text);
      option.selected = value === chosen;
      select.append(option);
    }
    return element("label", {}, label + " ", select);
  }

  function bar(episode) {
    const of = (step) => data.episodes.map((one, place) => [place, one]).filter(([, one]) => one.step === step);
    const named = of(episode.step).map(([place, one]) => [place, one.name + outcome(one)]);
    return element("div", { class: "bar" },
      element("button", { type: "button", onclick: () => show(current - 1, "previous") }, "← previous"),
      element("button", { type: "button", onclick: () => show(current + 1, "next") }, "next →"),
      choices(steps.map((step) => [step, String(step)]), "Training step", episode.step,
        (event) => show(of(Number(event.target.value))[0][0], "Training step")),
      choices(named, "Episode", current, (event) => show(Number(event.target.value), "Episode")));
  }

  function strip(candidate) {
    const surprise = candidate.logprobs.map((logprob) => Math.min(1, -logprob / 4));
    const most = Math.max(...candidate.advantages.map(Math.abs), 0);
    return element("div", { class: "strip", role: "list", "aria-label": "tokens" }, ...candidate.tokens.map((text, t) => {
      const own = candidate.advantages[t] ?? candidate.numbers.advantage ?? "–";
      const told = `id ${candidate.ids[t]}, log p ${candidate.logprobs[t]}, advantage ${own}`;
      const token = element("span", { class: "token", role: "listitem", title: told, "aria-label": `${text}: ${told}` }, text);
      token.style.background = candidate.advantages.length
        ? toward(own < 0 ? [86, 180, 233] : [230, 159, 0], most ? Math.abs(own) / most : 0) : shade(surprise[t] || 0);
      return token;
    }));
  }

  function candidate(found, node, next) {
    const facts = Object.entries(found.numbers).map(([name, value]) => `${name} ${value}`);
    const state = [found.kept ? "kept" : "not kept", found.valid ? "" : "not understood", found.finish === "length" ? "cut off" : ""];
    const shown = element("section", { class: found.kept ? "candidate kept" : "candidate", id: "action " + found.action + " " + node.agent },
      element("strong", {}, `${found.kept ? "✓ " : ""}candidate ${found.index}`), " ",
      element("span", { class: "quiet" }, state.filter(Boolean).join(", ")),
      element("pre", { class: "said", tabindex: "0", "aria-label": `what ${node.agent} said` }, found.said || "(nothing)"),
      element("div", { class: "quiet" }, facts.join(" · ")));
    if (found.info) shown.append(element("div", { class: "quiet" }, "the world told: " + found.info));
    if (found.tokens.length) {
      const folded = element("details", {}, element("summary", {}, `${found.tokens.length} tokens`));
      folded.addEventListener("toggle", () => { if (folded.open && folded.children.length === 1) folded.append(strip(found)); });
      shown.append(folded);
    }
    if (next) shown.append(element("button", { type: "button", onclick: () => reveal("node " + next) }, "→ what followed"));
    return shown;
  }

  function reveal(id) {
    const target = document.getElementById(id);
    target.scrollIntoView();
    target.focus();
  }

  function node(found, followers, place) {
    const said = element("details", found.heard.length < 400 ? { open: "" } : {},
      element("summary", {}, "heard"), element("pre", { class: "said", tabindex: "0" }, found.heard));
    const shown = element("article", { class: "node", id: "node " + found.node + (place ? " " + place : ""), tabindex: "-1" },
      element("h3", {}, element("span", { class: "swatch" }), `${found.agent}, turn ${found.turn}`),
      element("div", { class: "quiet" }, `environment step ${found.depth}, node ${found.node}` + (found.parent ? `, after ${found.parent}` : "")),
      said, ...found.candidates.map((one) => candidate(one, found, followers.get(one.action))));
    shown.style.setProperty("--agent", data.agents[found.agent] || "#888");
    shown.style.marginLeft = Math.min(found.depth, 8) * 0.4 + "rem";
    return shown;
  }

  function show(place, asked) {
    current = Math.max(0, Math.min(data.episodes.length - 1, place));
    const episode = data.episodes[current];
    const followers = new Map(episode.nodes.filter((one) => one.parent).map((one) => [one.parent, one.node]));
    const seen = new Map();
    const nodes = episode.nodes.map((one) => {
      const before = seen.get(one.node) || 0;
      seen.set(one.node, before + 1);
      return node(one, followers, before);
    });
    root.replaceChildren(bar(episode),
      element("h2", { "aria-live": "polite" }, `Step ${episode.step}, ${episode.name}${outcome(episode)}`), ...nodes);
    const focus = [...root.querySelectorAll(".bar button, .bar select")].find((one) =>
      asked && (one.getAttribute("aria-label") === asked || one.textContent.includes(asked)));
    if (focus) focus.focus();
  }

  show(0, null);
})();
