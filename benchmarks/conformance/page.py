"""Write docs/conformance.md from the cases and the recorded answers."""

import json
import re

INTRO = """# Conformance

{count} golden batches: tiny batches with the numbers that a trainer of language models should give. Each comes from
a published bug or a published equation. `benchmarks/conformance/cases/` has a JSON file per case, which needs no
code of ours: tokens, log-probabilities, rewards and settings, and the expected advantages, losses and gradients
with a tolerance. `benchmarks/conformance/make.py` works all numbers out in plain Python and torch, in float64. If
you maintain a trainer, take the files for your own tests.

{trainers} answered with their own code on one CPU. The answers:

- **pass**: every compared number is within the tolerance. A case that allows an error is also passed by an error
  that names what is wrong.
- **pass\\***: the same, by a part of one's own, a few lines in `benchmarks/conformance/with_mas_lab.py`. The other
  trainers can be extended, too; only what they ship was tried.
- **fail**: a number differs. The page gives the trainer's number against the expected one.
- **by design**: the trainer answers something else on purpose, or by its type of numbers. A sentence says what.
- **–**: cannot be expressed. The trainer has no such setting. This is no judgement: a trainer of one policy needs
  no groups of agents.

| | {names} |
|---|{dashes}|
{counts}

The authors of mas_lab chose the cases. So the first column is a test of this kit, and the table is no ranking. A
pass is about the functions that were called, on these batches and in these versions. It says nothing about
sampling, several processes, or a whole training. What was called stands [below](#what-was-called).
"""
OUTRO = """
## What was called

- **mas_lab**: the cells `group`, `select`, `normalize` and `update`, on a Hugging Face model whose logits are the
  table of the case. The parts of one's own are a credit with the penalty, and a loss with k1, k2 and the two
  variants of k3 ([extending](extending.md)). Rewards that differ by at most 2⁻²¹ of the larger count as equal, so
  that 1e8 + 1 and 1e8 + 4 are a flat group.
- **TRL**: `GRPOTrainer` and `RLOOTrainer` on the same model. `_generate` returns the tokens of the case;
  `_generate_and_score_completions` and `_compute_loss` are its own. A missing or excluded reward is `None` there.
  The sum over tokens is its loss type `luspo` with a ratio per token, the mean over tokens `dapo`, and the mean
  over rows `grpo`.
- **CoMLRL**: `MAGRPOTrainer` without its constructor. `_train_step_returns` plays the tree of joint actions, and
  `_compute_loss_with_gradients` gives loss and advantages. Its loss leaves out the last token of a completion,
  which `end_of_sequence_is_trained` shows. In the other cases of a loss a token was appended, so that they are
  about their own subject.
- **verl**: `compute_grpo_outcome_advantage`, `compute_rloo_outcome_advantage`, the policy losses "vanilla", "gspo"
  and REINFORCE, `agg_loss`, `kl_penalty` and `compute_rollout_correction_weights`. Log-probabilities come from the
  table of the case in float64, and rewards are float32. Its workers were not run.

Two were not asked. verifiers 0.4.0 has no trainer: its last one (0.1.8, extra `rl`) needs flash-attn and a GPU.
prime-rl stands in no package index. Its source (559b4477, August 2026) has the mean of a group, which cases with a mean
alone could test. Its losses mask tokens by differences of probability, and add a squared log-ratio; no case has them.

Commands and versions stand in `data/results/conformance/`. `benchmarks/README.md` says how to run them again.
"""


def linked(source):
    """Return a source with links to threads and papers."""
    source = re.sub(
        r"([\w.-]+/[\w.-]+) (issue|pull requests?) (\d+)(?: and pull request (\d+)| and (\d+))?",
        lambda found: threads(*found.groups()), source,
    )  # fmt: skip
    return re.sub(r"arXiv (\d{4}\.\d{5})", r"[arXiv \1](https://arxiv.org/abs/\1)", source)


def threads(repository, kind, first, request, second):
    place = f"{repository}/{'issues' if kind == 'issue' else 'pull'}/{first}"
    links = [f"[{repository}#{first}](https://github.com/{place})"]
    for other in filter(None, (request, second)):
        links.append(f"[#{other}](https://github.com/{repository}/pull/{other})")
    return ", ".join(links)


def cell(answer):
    kind, _, rest = answer["verdict"].partition(": ")
    if answer.get("own_part"):
        return "pass\\*"
    short = {"cannot be expressed": "–", "differs by design": "by design"}
    return short.get(kind, f"**fail**: {rest}" if kind == "fail" else kind)


def table(head, rows):
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *[f"| {' | '.join(row)} |" for row in rows]])


def write_page(path, cases, results, trainers):
    records = {name: json.loads((results / f"{name}.json").read_text()) for name in trainers}
    titles = [f"{record['trainer']} {record['versions'].get(name, '')}".strip() for name, record in records.items()]
    answers = {name: record["cases"] for name, record in records.items()}
    for name, found in answers.items():
        if set(found) != {case["name"] for case in cases}:
            raise SystemExit(f"{name}: its record has other cases; run it again")
    kinds = ["pass", "fail", "differs by design", "cannot be expressed"]
    counts = "\n".join(
        f"| {kind} | " + " | ".join(
            str(sum(answer["verdict"].split(":")[0] == kind for answer in found.values())) for found in answers.values()
        ) + " |" for kind in kinds
    )  # fmt: skip
    parts = [INTRO.format(
        count=len(cases), trainers=f"{', '.join(titles[:-1])} and {titles[-1]}", names=" | ".join(titles),
        dashes="---|" * (len(titles) - 1) + "---", counts=counts,
    )]  # fmt: skip
    numbers = {case["name"]: number for number, case in enumerate(cases, 1)}
    for chapter in dict.fromkeys(case["chapter"] for case in cases):
        own = [case for case in cases if case["chapter"] == chapter]
        parts.append(f"\n## {chapter.capitalize()}\n")
        parts.append(table(["", "case", *[record["trainer"] for record in records.values()]], [
            [str(numbers[name]), f"`{name}`", *[cell(found[name]) for found in answers.values()]]
            for name in (case["name"] for case in own)]))  # fmt: skip
        parts.append("")
        parts.append(table(["", "what is asked", "source"], [
            [str(numbers[case["name"]]), case["what"], linked(case["source"])] for case in own]))  # fmt: skip
    parts.append("\n## Where a trainer answers something else\n")
    for name, found in answers.items():
        for case, answer in found.items():
            kind, _, rest = answer["verdict"].partition(": ")
            title = records[name]["trainer"]
            if kind == "fail":
                parts.append(f"- {title}, `{case}`: {rest}. {answer.get('note', '')}".rstrip())
            elif kind == "differs by design":
                parts.append(f"- {title}, `{case}`, by design: {rest} It gives {answer['numbers']}.")
    parts.append("\n## What cannot be expressed, and why\n")
    rows = []
    for name, found in answers.items():
        reasons = {}
        for case, answer in found.items():
            kind, _, rest = answer["verdict"].partition(": ")
            if kind == "cannot be expressed":
                reasons.setdefault(rest, []).append(str(numbers[case]))
        rows += [[records[name]["trainer"], reason, ", ".join(own)] for reason, own in reasons.items()]
    parts.append(table(["trainer", "reason", "cases"], rows))
    path.write_text("\n".join(parts) + "\n" + OUTRO)
