"""Let a coder and a unit tester work at once, without seeing each other's text (AT-GRPO, arXiv 2510.11062).

The coder writes a function, and the tester writes cases for it. The sandbox runs the function on these cases. Until
they agree, each agent sees both drafts and the results, and writes again. Pocket size has one-line Python for a chain
of operations on digits, full size has programming problems. Running programs is in `sandbox`, grading and reading them
and the problems in `programs`. Whether a case would catch a mistake is not measured.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mas_lab.env import Message, Step
from mas_lab.tasks.sandbox import literal
from mas_lab.tasks.shared import lists, problem_sets, programs
from mas_lab.tasks.shared.bases import PROMPTS, chat
from mas_lab.tasks.shared.programs import Case, Problem, Result, as_text, function, read_code, readable
from mas_lab.tasks.shared.rows import draw

BUILDS, SMOKE, PASSES = 0.1, 0.1, 0.8
VALID, RIGHT = 0.2, 0.8
OPERATIONS, HIDDEN, TESTED = 2, 4, 3
"""Pocket size: operations of a problem, hidden cases, and digits of the list that the tester's cases use."""
BEFORE_LIST = " of "
"""Text between the operations of a pocket problem and the list that the tester shall use."""


@dataclass(frozen=True)
class State:
    problem: Problem
    code: str = ""
    tests: str = ""
    failures: tuple[tuple[str, str], ...] = ()
    """Tester's cases that the function failed, each with its result."""
    worth: float = 0.0
    """Pass rate of the last program."""
    turn: int = 0
    done: bool = False


@dataclass(frozen=True)
class CodeTests(problem_sets.ProgramTask):
    """Coder and tester write at once, for up to `max_turns` turns.

    The episode ends early if the function passes all of the tester's cases and there are enough of them. Hidden cases
    and their results are never shown.

    `team_reward` is the gain in the function's pass rate on the hidden cases in this turn. So the return is the pass
    rate of the last function, at most 1, and a tester gains nothing by agreeing. Success: the last function passes all
    cases.

    `local_reward` of the coder: 0.1 if the program builds (it parses and defines the function), 0.1 if it runs on the
    first case, and 0.8 times the pass rate. `local_reward` of the tester: 0.2 for cases that can be read (1 to `most`),
    and 0.8 times the share of them that the gold program passes. A repeated case counts once. A case does not count if
    the problem shows its arguments, or if a function passes it that returns its first argument. Fewer cases than
    `fewest` count as a share of `fewest`.

    Rewards "published" (our reading of the paper) differ: each turn pays its pass rate again, so `max_return` is
    `max_turns`. The hidden cases include the cases that the problem shows. Every case counts as often as it is written.
    Any text that parses builds. No case at all is agreement. The tests show the defect of each.

    A program that needs something that the sandbox lacks fails. `Step.info` then has its status, "unsupported". If the
    gold program itself cannot run, the tester's cases earn only 0.2.

    `size` is either "pocket" (2 operations), "full", or the number of operations of a pocket problem, 2 to 4.
    """

    max_turns: int = 3

    name = "code_tests"
    paper = "AT-GRPO, arXiv 2510.11062"
    order = "coder + tester, up to 3 turns"
    state_type = State
    slips = {"coder": 0.4, "tester": 0.35}
    """Share of the coder's operations that are replaced, and of the tester's cases with a random digit, at `mistakes` =
    1."""

    roles = ("coder", "tester")
    default = OPERATIONS
    words = (*lists.WORDS, "f", BEFORE_LIST.strip(), "was", "tested", "gave", "error", "coder", "tester", "solo")

    @property
    def fewest(self) -> int:
        return 3 if self.full else 1

    @property
    def most(self) -> int:
        return 8 if self.full else 2

    @property
    def max_return(self) -> float:
        return float(self.max_turns) if self.published and not self.single_agent else 1.0

    @property
    def max_tokens(self) -> int:
        return 1024 if self.full else 18 * self.number + 10

    def drawn(self, rng: random.Random, n: int, split: str) -> Iterator[Problem]:
        """Yield `n` pocket problems; their operations decide the split."""
        chains = lists.problems(rng, self.number)
        texts = (f"{one}{BEFORE_LIST}{' '.join(map(str, lists.numbers(rng, TESTED)))}" for one in chains)
        for text in draw(texts, n, split, self.name, chain):
            cases = "\n".join(lists.case("f", x, y) for [x], y in lists.cases(chain(text), HIDDEN))
            yield Problem(text, "f", cases=cases, gold=lists.program("f", lists.parts(chain(text))))

    def observe(self, state: State, agent: str) -> list[Message]:
        problem = state.problem
        if not self.full:
            results = " ".join(result for _, result in state.failures)
            drafts = f"was {state.code} tested {state.tests} gave {results} " if state.turn else ""
            return chat(f"{drafts}{problem.text} {agent}")
        facts = {"entry": problem.entry, "fewest": self.fewest, "most": self.most}
        prompts = {name: text.format(**facts) for name, text in PROMPTS[self.name].items()}
        parts = [problem.text, *([prompts["stdin"]] if problem.stdin else [])]
        if problem.examples:
            parts.append(f"Examples:\n\n{problem.examples}")
        if state.turn:
            failed = "\n".join(f"{case}    # gave {result}" for case, result in state.failures) or "none"
            parts.append(f"The function so far:\n\n{state.code}\n\nThe cases so far:\n\n{state.tests}")
            parts.append(f"Cases that it fails:\n\n{failed}\n\n{prompts[f'anew_{agent}']}")
        return chat("\n\n".join(parts), prompts[agent])

    def act(self, state: State, actions: Mapping[str, str]) -> Step:
        problem, published = state.problem, self.published
        coder = self.agents[0]
        code = read_code(actions[coder], f"def {problem.entry}")
        built = code is not None and function(code, problem.entry) is not None
        examples, hidden = problem.visible, problem.hidden
        graded = problem.grade(code or "", (*examples, *hidden))
        passed = graded.passed if published or not hidden else graded.passed[len(examples) :]
        worth = sum(passed) / max(1, len(passed))
        smoke = built and graded.outcome.failed[:1] == (False,)
        builds = code is not None if published else built
        local = {coder: BUILDS * builds + SMOKE * smoke + PASSES * worth * built}
        valid, info = {coder: built}, {"code": graded.info}
        failures, agreed = (), self.single_agent
        if not self.single_agent:
            cases = programs.read_cases(actions["tester"], problem.entry)
            if not self.full:
                cases = [case for case in cases if len(case[0]) == 1 and is_list(case[0][0], TESTED)]
            valid["tester"] = 1 <= len(cases) <= self.most
            own = problem.grade(code or "", cases)
            gold = problem.confirm(cases)
            counted = self._counted(problem, cases, gold.passed)
            enough = max(1 if published else self.fewest, len(counted))
            local["tester"] = (VALID + RIGHT * (sum(counted) / enough)) if valid["tester"] else 0.0
            agreed = all(own.passed) and (published or (valid["tester"] and len(counted) >= self.fewest))
            failures = self._failures(problem, cases, own)
            info |= {"tests": gold.info | {"counted": len(counted)}, "own": own.info, "agreed": agreed}
        done = agreed or state.turn + 1 == self.max_turns
        texts = [self.shorten(actions[agent]) for agent in self.agents]
        after = State(problem, texts[0], texts[-1], failures, worth, state.turn + 1, done)
        gained = worth if published else worth - state.worth
        return Step(after, gained, local, valid, done and worth == 1, done, info)

    def _counted(self, problem: Problem, cases: Sequence[Case], right: tuple[bool, ...]) -> list[bool]:
        """Return, for each case that counts, whether it is right."""
        if self.published:
            return list(right)
        found: dict[str, bool] = {}
        known = {literal(list(arguments), "case") for arguments, _ in problem.visible}
        for (arguments, expected), passed in zip(cases, right, strict=True):
            key = literal(list(arguments), "case")
            if key not in known and not (arguments and literal(arguments[0], "case") == literal(expected, "case")):
                found[key] = found.get(key, True) and passed
        return list(found.values())

    def _failures(self, problem: Problem, cases: Sequence[Case], own: Result) -> tuple[tuple[str, str], ...]:
        values = own.outcome.values
        failed = [i for i, passed in enumerate(own.passed) if not passed][: self.most]
        if not self.full:
            return tuple(("", lists.text_of(values[i]) if is_list(values[i]) else "error") for i in failed)
        error = readable(own.outcome.stderr)
        results = [error if own.outcome.failed[i] else repr(values[i])[:200] for i in failed]
        return tuple((as_text([cases[i]], problem.entry)[:400], one) for i, one in zip(failed, results, strict=True))

    def demonstrate(self, state: State, agent: str, rng: random.Random) -> str:
        """Return an imperfect answer to learn from: wrong operations, wrong digits.

        In full size, each half of the time, it is right (gold program, hidden cases) or wrong (an empty function, wrong
        cases).
        """
        problem, tester = state.problem, agent == "tester"
        if self.full:
            right = rng.random() < 0.5
            cases = [[x, y if right else "wrong"] for x, y in problem.hidden[: self.fewest]]
            code = problem.gold if right else f"def {problem.entry}(*given):\n    pass"
            return f"```python\n{as_text(cases, problem.entry) if tester else code}\n```"
        slip = self.slips["tester" if tester else "coder"] * self.mistakes
        if tester:
            x = [int(digit) for digit in problem.text.partition(BEFORE_LIST)[2].split()]
            y = list(lists.done(chain(problem.text), x))
            if rng.random() < slip:
                y[rng.randrange(len(y))] = rng.randrange(10)
            return lists.case("f", x, y)
        right = lists.parts(chain(problem.text))
        return lists.program("f", [rng.choice(lists.OPERATIONS) if rng.random() < slip else one for one in right])


def chain(text: str) -> str:
    """Return the operations of a pocket problem."""
    return text.partition(BEFORE_LIST)[0]


def is_list(value: object, length: int | None = None) -> bool:
    """Return whether `value` is a list of digits: `length` of them, or few enough to be shown if `length` is `None`."""
    digits = isinstance(value, list) and all(type(one) is int and 0 <= one <= 9 for one in value)
    return digits and (len(value) == length if length else len(value) <= 4 * TESTED)
