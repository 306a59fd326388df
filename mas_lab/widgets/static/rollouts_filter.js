"use strict";
// The filter's grammar: what a line of words asks for, and whether an episode has it. The kernel reads the same one.
((viewer) => {
  const PART = /(-?)(?:([a-zA-Z]+):)?(?:"([^"]*)"?|(\S+))/gu;
  const FLAGS = ["failed", "succeeded", "invalid", "truncated", "lone", "marked"];
  const RANGE = /^(\d+)(?:-(\d+))?$/;

  function term(found) {
    const [, minus, name, quoted, plain] = found;
    const value = quoted ?? plain,
      negated = minus === "-";
    const lower = value.toLowerCase(),
      field = name && name.toLowerCase();
    if (!name && quoted === undefined && FLAGS.includes(lower)) return { kind: lower, negated };
    if (field === "agent" || field === "task") return { kind: field, value: lower, negated };
    const range = RANGE.exec(value);
    if ((field === "step" || field === "run") && range)
      return { kind: field, from: Number(range[1]), to: Number(range[2] ?? range[1]), negated };
    return { kind: "text", value: (name ? `${name}:${value}` : value).toLowerCase(), negated };
  }

  function parse(line) {
    return [...line.matchAll(PART)].map(term).filter((one) => one.value !== "");
  }

  // `row`: the columns of the index; `text`: task, episode, heard and said, in lower case; `marked`: has it a mark?
  const HAS = {
    failed: ({ row }) => row.success === false,
    succeeded: ({ row }) => row.success === true,
    invalid: ({ row }) => row.invalid > 0,
    truncated: ({ row }) => row.truncated > 0,
    lone: ({ row }) => row.lone > 0,
    marked: ({ marked }) => marked(),
    agent: ({ row }, { value }) => row.agents.toLowerCase().split(", ").includes(value),
    task: ({ row }, { value }) => row.task.toLowerCase().includes(value),
    step: ({ row }, { from, to }) => from <= row.step && row.step <= to,
    run: ({ row }, { from, to }) => from <= (row.run || 0) && (row.run || 0) <= to,
    text: ({ text }, { value }) => text().includes(value),
  };

  const matches = (terms, found) => terms.every((one) => HAS[one.kind](found, one) !== one.negated);

  Object.assign(viewer, { FLAGS, parse, matches });
})(MasLabRollouts);
