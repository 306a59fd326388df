"""Write docs/conformance.md from the cases and the recorded answers."""

import json
import re

INTRO = """# Conformance

Does a trainer compute what the papers say? {count} *golden batches* ask: a few rows each, with the advantages, losses
and gradients that a trainer of language models should give. Each comes from a published bug or equation. A case is one
JSON file in `benchmarks/conformance/cases/`, which needs no code of ours. If you maintain a trainer, take them for your
tests.

| | {names} |
|---|{dashes}|
{counts}

The trainers answered with their own code on one CPU. We chose the cases, so our answers are a test of this kit, and the
table is no ranking. A pass says nothing about sampling, several processes, or a whole training. mas_lab passes {passed}
cases, {own} of them with a part of a few lines (`benchmarks/conformance/with_mas_lab.py`); the other trainers can be
extended as well, but only what they ship was tried.

- **pass**: every number is within the tolerance; in some cases an error that names the defect passes too.
- **by design**: the trainer answers something else on purpose, or because of its number type.
- **–**: the trainer has no such setting; `data/results/conformance/` says why.
"""
OUTRO = """
## What was called

- **mas_lab**: the cells `group`, `select`, `normalize` and `update`, on a model whose logits are the table of the case.
- **TRL**: `GRPOTrainer` and `RLOOTrainer` on the same model. `_generate` returns the tokens of the case.
- **CoMLRL**: `MAGRPOTrainer` without its constructor. Its loss leaves out the last token of a completion, so in the
  other cases of a loss a token was appended.
- **verl**: its advantage estimators, policy losses and penalties, on the table of the case. Its workers were not run.

`benchmarks/README.md` says how to run it again.
"""


def sources(text):
    """Return links to the threads and papers of a source; the case has the section or equation."""
    return ", ".join(map(linked, text.split("; ")))


def linked(source):
    if found := re.match(r"arXiv (\d{4}\.\d{5})(?: \(([^)]+)\))?", source):
        return f"[{found[2] or f'arXiv {found[1]}'}](https://arxiv.org/abs/{found[1]})"
    if found := re.match(r"([\w.-]+)/([\w.-]+) (issue|pull requests?) (\d+)(?: and (?:pull request )?(\d+))?", source):
        return threads(*found.groups())
    return source


def threads(owner, name, kind, first, second):
    place = f"https://github.com/{owner}/{name}"
    links = [f"[{name}#{first}]({place}/{'issues' if kind == 'issue' else 'pull'}/{first})"]
    return ", ".join([*links, f"[#{second}]({place}/pull/{second})"] if second else links)


def passes(answer):
    return answer["verdict"] == "pass"


def cell(answer):
    kind = answer["verdict"].partition(": ")[0]
    short = {"cannot be expressed": "–", "differs by design": "by design"}
    return short.get(kind, "**fail**" if kind == "fail" else kind)


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
    dashes = "---|" * (len(titles) - 1) + "---"
    ours = answers["mas_lab"].values()
    passed, own = sum(map(passes, ours)), sum(map(passes, (one for one in ours if one.get("own_part"))))
    parts = [INTRO.format(count=len(cases), names=" | ".join(titles), dashes=dashes, counts=counts, passed=passed,
                          own=own)]  # fmt: skip
    others = [name for name in trainers if name != "mas_lab"]
    for chapter in dict.fromkeys(case["chapter"] for case in cases):
        parts.append(f"\n## {chapter.capitalize()}\n")
        own = {case["name"]: case for case in cases if case["chapter"] == chapter}
        rows = [
            [f"`{name}`", *[cell(answers[other][name]) for other in others], f"{one['what']} {sources(one['source'])}"]
            for name, one in own.items()
        ]
        titles = [records[name]["trainer"] for name in others]
        parts.append(table(["case", *titles, "what is asked, and who asks"], rows))
    parts.append("\n## Where a trainer answers something else\n")
    for name, found in answers.items():
        for case, answer in found.items():
            kind, _, rest = answer["verdict"].partition(": ")
            title = records[name]["trainer"]
            if kind == "fail":
                parts.append(f"- {title}, `{case}`: {rest}. {answer.get('note', '')}".rstrip())
            elif kind == "differs by design":
                parts.append(f"- {title}, `{case}`, by design: {rest} It gives {answer['numbers']}.")
    path.write_text("\n".join(parts) + "\n" + OUTRO)
