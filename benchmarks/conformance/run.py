"""Answer the golden batches of `cases/` with a trainer's own code, and write what agrees.

    python benchmarks/conformance/run.py --trainer mas_lab   # writes data/results/conformance/mas_lab.json
    python benchmarks/conformance/run.py --page              # writes docs/conformance.md from these files

Each trainer runs in an environment of its own; README.md says how to make one. A module `with_TRAINER.py` has the two
functions `advantages(case)` and `loss(case)`, which return numbers under the names of the case's `expected`. They raise
`Refused` if the trainer stops with an error that says what is wrong, and `Inexpressible` if it has no such setting. Its
`DESIGN` says why the trainer answers something else on purpose, and `NOTES` what causes a failure.
"""

import argparse
import importlib
import importlib.metadata
import json
import math
import platform
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "data" / "results" / "conformance"
TRAINERS = {"mas_lab": "mas_lab", "trl": "TRL", "comlrl": "CoMLRL", "verl": "verl"}
sys.path.insert(0, str(HERE))


def cases():
    """Return all cases in the order of their numbers."""
    return [json.loads(path.read_text()) for path in sorted((HERE / "cases").glob("*.json"))]


def flat(values):
    """Return the numbers of nested lists in order."""
    if isinstance(values, list):
        return [number for value in values for number in flat(value)]
    return [math.nan if values is None else float(values)]


def furthest(expected, found):
    """Return (gap, expected, found) of the numbers that differ most; the gap of a NaN is infinite."""
    pairs = list(zip(flat(expected), flat(found), strict=True))
    return max(((abs(a - b) if math.isfinite(b) else math.inf), a, b) for a, b in pairs)


def judge(case, trainer):
    """Return {"verdict": ..., "compared": ...} of one case."""
    expected, limit = case["expected"], case["tolerance"]["absolute"]
    name = case["name"]
    try:
        found = getattr(trainer, case["kind"])(case)
    except Exception as error:
        kind = type(error).__name__
        if kind == "Inexpressible":
            return {"verdict": f"cannot be expressed: {error}"}
        if kind == "Refused":
            verdict = "pass" if expected.get("refused") else f"fail: an error, {error}"
            return {"verdict": verdict, "compared": ["refused"], "error": str(error)}
        raise
    compared = [key for key in expected if key in found]
    if not compared:
        raise ValueError(f"{name}: the trainer answered {sorted(found)}, and the case expects {sorted(expected)}")
    worst = {key: furthest(expected[key], found[key]) for key in compared}
    answer = {"compared": compared, "largest_gap": {key: gap for key, (gap, _, _) in worst.items()}}
    bad = next((key for key in compared if worst[key][0] > limit), None)
    if bad is None:
        return {"verdict": "pass", **({"own_part": True} if name in getattr(trainer, "OWN", ()) else {}), **answer}
    _, a, b = worst[bad]
    numbers = f"{b:.4g} against {a:.4g} ({bad.replace('_', ' ')})"
    if name in trainer.DESIGN:
        return {"verdict": f"differs by design: {trainer.DESIGN[name]}", "numbers": numbers, **answer}
    note = {"note": trainer.NOTES[name]} if name in trainer.NOTES else {}
    return {"verdict": f"fail: {numbers}", **note, **answer}


def finite(value):
    """Return the value with NaN and infinity as text, which JSON lacks."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def run(name):
    """Return the record of a trainer."""
    trainer = importlib.import_module(f"with_{name}")
    versions = {package: importlib.metadata.version(package) for package in trainer.PACKAGES}
    versions["python"] = platform.python_version()
    found = {case["name"]: finite(judge(case, trainer)) for case in cases()}
    unused = [case for case in trainer.DESIGN if word(found[case]["verdict"]) != "differs by design"]
    unused += [case for case in trainer.NOTES if word(found[case]["verdict"]) != "fail"]
    if unused:
        raise SystemExit(f"{name}: a sentence explains cases that do not differ: {', '.join(unused)}")
    command = f"python benchmarks/conformance/run.py --trainer {name}"
    return {"trainer": TRAINERS[name], "command": command, "versions": versions, "cases": found}


def word(verdict):
    return verdict.split(":")[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", choices=TRAINERS)
    parser.add_argument("--out", type=Path, help="another file than data/results/conformance/TRAINER.json")
    parser.add_argument("--page", action="store_true", help="write docs/conformance.md")
    args = parser.parse_args()
    if args.trainer:
        record = run(args.trainer)
        out = args.out or RESULTS / f"{args.trainer}.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1) + "\n")
        for name, answer in record["cases"].items():
            print(f"{name:45} {answer['verdict']}")
        verdicts = [word(answer["verdict"]) for answer in record["cases"].values()]
        print({verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)})
    if args.page:
        from page import write_page

        write_page(ROOT / "docs" / "conformance.md", cases(), RESULTS, TRAINERS)


if __name__ == "__main__":
    main()
