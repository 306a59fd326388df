"""Let two agents write one program as two functions (MAGRPO, arXiv 2508.04652).

The helper writes `aux`; main writes the asked function, which should call `aux`. Both write at once and do not see each
other's code. With several turns, each sees its own draft and feedback on both drafts, and writes again. The feedback
comes from a parser and the problem's own examples. Pocket size has one-line Python for a chain of operations on digits,
full size has programming problems. The reward of two functions and the feedback are in
`pair_code`, the problems in `programs`.
"""

import ast
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mas_lab.env import Message, Step
from mas_lab.tasks.shared import lists, pair_code, problem_sets
from mas_lab.tasks.shared.bases import PROMPTS, chat
from mas_lab.tasks.shared.pair_reward import MARKER
from mas_lab.tasks.shared.programs import Problem, as_text, function, parsed, read_code
from mas_lab.tasks.shared.rows import draw

OPERATIONS, EXAMPLES, HIDDEN = 3, 3, 6
"""Pocket size: operations of a problem, cases that the feedback uses, and hidden cases."""


@dataclass(frozen=True)
class State:
    problem: Problem
    drafts: tuple[str, str] | None = None
    """Drafts after the last turn: helper, main."""
    aux: str | None = None
    """Helper's code of this turn that main sees, if they write in turn."""
    score: float = 0.0
    turn: int = 0
    done: bool = False


@dataclass(frozen=True)
class CodePair(problem_sets.ProgramTask):
    """Helper and main write at once, for `max_turns` turns.

    A pair of drafts is worth up to 4 (`pair_code.judge`). The levels are gated: a level that fails shuts off those
    after it.

    - aux: 0.4 if `aux` is defined with a return; if not, only the levels about `aux` are shut off
    - main: 0.6 if the asked function is defined with a return
    - parses: 0.5 if both functions parse together
    - tests: share of the hidden tests that pass
    - used: 0.5 times that share if main uses `aux`; -0.5 times that share if main calls it without using it
    - apart: 1.0 times that share if main uses `aux` and is no thin wrapper of it

    With rewards "ours", `team_reward` is the gain in worth in this turn, so the return is the worth of the last drafts.
    Success: the last drafts are worth 4. `enough`, 3.8, is CoMLRL's threshold. Main uses `aux` if it calls it, and if
    at least a quarter of the passed tests fail once `aux` returns its argument. An `aux` with one constant result is
    never used. Main is a thin wrapper if `aux` alone passes the tests, or if each of its returns is a result of `aux`.
    Some cases look the same as divided work: an `aux` that solves all but one step, and a main that does all the work,
    and undoes what `aux` did or verifies its result.

    Rewards "published" (CoMLRL's rule, `pair_code.judge_published`) look for words, and open the bonuses after a single
    passed test. They pay each turn's drafts again, so `max_return` is 4 per turn. The tests score their known defects.
    Main needs only a useless `aux` under an unused name, a call in a comment or a text, or an `aux` that it defines
    again. An ignored result of a call with two arguments also passes. A program that passes one of three tests with a
    dummy `aux` scores higher than a correct thin wrapper. Pocket programs of one line are laid out first, else each
    would count as a wrapper.

    The paper's comparisons: with `teamwork="concatenated"` main does not know of `aux`, and the two texts are joined.
    With `teamwork="in_turn"` main sees the helper's text of this turn. For prompts alone, call `lab.evaluate` on a team
    without training.

    `local_reward` is 1 if the writer's own function is defined with a return. An answer without its function is
    invalid. A single agent's answer is also invalid if it does not have exactly one marker between the functions. A
    program that needs something that the sandbox lacks fails its tests; `Step.info` then has its status, "unsupported".

    `size` is either "pocket" (3 operations), "full", or the number of operations of a pocket problem, 2 to 4.
    """

    max_turns: int = 1
    teamwork: str = "together"
    feedback: str = "level"
    """Feedback between turns. "plain" is a fixed sentence on the first level that failed. "level" is what the parser
    and the problem's examples say about each level. In pocket size it is one word, and "level" adds how many examples
    passed. Neither uses hidden tests. (CoMLRL's plain feedback only asks to revise; its level feedback quotes the tests
    that pay.)"""

    name = "code_pair"
    paper = "MAGRPO, arXiv 2508.04652"
    order = "helper + main, 1 or more turns"
    state_type = State
    enough = 3.8
    slips = 0.1
    """Share of the operations of `demonstrate` that are replaced, at `mistakes` = 1."""
    strays = 0.4
    """Share of its answers that do not divide the work after the first operation, at `mistakes` = 1."""
    forgets = 0.4
    """Share of its main functions that do all the work alone, at `mistakes` = 1."""

    roles = ("helper", "main")
    default = OPERATIONS
    words = (*lists.WORDS, "f", "aux", MARKER, "draft", "sees", *pair_code.SENTENCES, *roles, "alone", "after", "solo")
    choices = {"teamwork": ("together", "concatenated", "in_turn"), "feedback": ("plain", "level")}

    def __post_init__(self):
        super().__post_init__()
        alone = self.single_agent and self.teamwork != "together"
        self.require("teamwork", not alone, "it needs a team; leave single_agent out")

    @property
    def max_return(self) -> float:
        return pair_code.BEST * (self.max_turns if self.published else 1)

    @property
    def max_tokens(self) -> int:
        both = 2 if self.single_agent else 1
        return both * (768 if self.full else 16 * self.number + 16)

    def drawn(self, rng: random.Random, n: int, split: str) -> Iterator[Problem]:
        """Yield `n` pocket problems; their first operation makes a difference."""
        for text in draw(lists.problems(rng, self.number), n, split, self.name, fits=divides):
            cases = [[arguments, list(result)] for arguments, result in lists.cases(text, EXAMPLES + HIDDEN)]
            examples, hidden = as_text(cases[:EXAMPLES], "f"), as_text(cases[EXAMPLES:], "f")
            yield Problem(text, "f", examples, hidden, lists.program("f", lists.parts(text)))

    def acting(self, state: State) -> tuple[str, ...]:
        if state.done or self.teamwork != "in_turn":
            return () if state.done else self.agents
        return self.agents[:1] if state.aux is None else self.agents[1:]

    def observe(self, state: State, agent: str) -> list[Message]:
        """Return the prompt; in pocket size `sort then add 3 then reverse draft <own draft> tests 1 helper`."""
        forms = {"concatenated": "alone", "in_turn": "after"}
        form = forms.get(self.teamwork, agent) if agent == "main" else agent
        own = [self.shorten(state.drafts[place]) for place in self._places(agent)] if state.drafts else []
        judged = self._judge(state, *state.drafts, on_examples=True) if own else None
        if not self.full:
            parts = [state.problem.text, *(["sees", self.shorten(state.aux)] if form == "after" else [])]
            parts += [f"draft {draft}" for draft in own] + ([pair_code.word(judged, self.feedback)] if own else [])
            return chat(" ".join([*parts, form]))
        prompts = {name: text.format(entry=state.problem.entry) for name, text in PROMPTS[self.name].items()}
        parts = [state.problem.text, *([prompts["stdin"]] if state.problem.stdin else [])]
        parts += [f"The function `aux`:\n\n{self.shorten(state.aux)}"] if form == "after" else []
        if own:
            feedback = pair_code.sentences(judged, self.feedback, state.problem, *state.drafts)
            parts += [*(f"Your draft:\n\n{draft}" for draft in own), feedback, prompts["anew"]]
        return chat("\n\n".join(parts), prompts[form])

    def _places(self, agent: str) -> tuple[int, ...]:
        return (0, 1) if agent == "solo" else (self.agents.index(agent),)

    def _judge(self, state: State, helper: str, main: str, on_examples: bool = False) -> pair_code.Judged:
        """Judge two drafts on the hidden tests, or on the examples that the problem shows."""
        cases = state.problem.visible if on_examples else state.problem.hidden
        if self.published and not on_examples:
            laid_out = (text if self.full or not parsed(text) else ast.unparse(parsed(text)) for text in (helper, main))
            return pair_code.judge_published(*laid_out, state.problem, cases)
        return pair_code.judge(helper, main, state.problem, cases)

    def _defines(self, text: str, place: int, problem: Problem) -> bool:
        name = (pair_code.AUX, problem.entry)[place]
        return pair_code.returns(function(read_code(text, f"def {name}") or "", name))

    def act(self, state: State, actions: Mapping[str, str]) -> Step:
        texts = [state.aux, *actions.values()] if state.aux is not None else list(actions.values())
        if self.single_agent:
            texts = actions["solo"].split(MARKER)
            texts = texts if len(texts) == 2 else ["", ""]
        drafts = tuple(text.strip() for text in texts)
        places = {agent: self._places(agent) for agent in actions}
        valid = {agent: all(self._defines(drafts[i], i, state.problem) for i in own) for agent, own in places.items()}
        local = {agent: float(one) for agent, one in valid.items()}
        if len(drafts) == 1:
            return Step(replace(state, aux=drafts[0]), 0.0, local, valid, False, False)
        judged, done = self._judge(state, *drafts), state.turn + 1 == self.max_turns
        after = State(state.problem, drafts, None, judged.score, state.turn + 1, done)
        gained = judged.score if self.published else judged.score - state.score
        info = {"parts": judged.parts, "fault": judged.fault}
        info |= {"tests": judged.graded.info} if judged.graded else {}
        return Step(after, gained, local, valid, done and judged.score > pair_code.BEST - 1e-6, done, info)

    def demonstrate(self, state: State, agent: str, rng: random.Random) -> str:
        """Return an imperfect answer to learn from: wrong operations, different divisions of the work, missing calls.

        In full size `aux` returns its argument, and main is the gold program or a function that does nothing.
        """
        if agent == "solo":
            return f" {MARKER} ".join(self.demonstrate(state, one, rng) for one in ("helper", "main"))
        if self.full:
            main = state.problem.gold if rng.random() < 0.5 else f"def {state.problem.entry}(*given):\n    return None"
            code = main if agent == "main" else "def aux(given):\n    return given"
            return f"```python\n{code}\n```"
        right = lists.parts(state.problem.text)
        wrong = self.mistakes * self.slips
        done = [rng.choice(lists.OPERATIONS) if rng.random() < wrong else operation for operation in right]
        first = rng.randint(2, len(right)) if rng.random() < self.strays * self.mistakes else 1
        if agent == "helper":
            return lists.program("aux", done[:first])
        if self.teamwork == "concatenated" or rng.random() < self.forgets * self.mistakes:
            return lists.program("f", done)
        return lists.program("f", done[first:], "aux")


def divides(text: str) -> bool:
    """Return whether the first operation changes the result of most cases of a pocket problem."""
    rest = " then ".join(lists.parts(text)[1:])
    cases = lists.cases(text, EXAMPLES + HIDDEN)[EXAMPLES:]
    return sum(lists.done(rest, x) != y for [x], y in cases) > len(cases) / 2
