"""Two tasks for the test of Dr. MAS's claim on a model that speaks.

`Facts` is `search` of a closed world, told in English sentences: the facts, the questions and the rewards are those of
pocket size. `Slips` is `math` with a solver that mostly errs, from whose demonstrations a verifier learns to tell.
Leaves out: a corpus that is the same for all tasks, whose answers a model could learn by heart.
"""

import random
import re
from typing import Any

from mas_lab.env import Message
from mas_lab.tasks.math import Math
from mas_lab.tasks.search import Search
from mas_lab.tasks.shared import questions
from mas_lab.tasks.shared.bases import chat

ASKS = {
    "verifier": "Say answer if the facts suffice, or else search.",
    "searcher": "Which fact is needed next? Say a person and a relation.",
    "answerer": "Say the answer in one word.",
}


class Facts(Search):
    """What each agent reads is a text; of what it says, case and punctuation do not matter."""

    max_tokens = 12

    def observe(self, state: Any, agent: str) -> list[Message]:
        facts = [text.split() for look in state.looks for _, text in look.found]
        known = " ".join(f"The {relation} of {person} is {value}." for person, relation, value in facts) or "No facts."
        left = self.max_turns - len(state.looks)
        question = "the " + state.question.replace(" of ", " of the ", state.question.count(" of ") - 1)
        return chat(f"{known}\nTurns left: {left}\nWho or what is {question}?", ASKS[agent])

    def read(self, text: str, agent: str) -> tuple[str, str] | None:
        return super().read(re.sub(r"[^a-z ]", " ", text.lower()), agent)


class Slips(Math):
    """Most demonstrated answers are wrong; the verifier writes its own number, then a true verdict.

    Shown answers that are often right or nearly so, a verifier can copy them in place of computing.
    """

    def demonstrate(self, state: Any, agent: str, rng: random.Random) -> str:
        value = questions.value(state.problem)
        if agent == "verifier":
            return f"{value}, {'approve' if str(value) == state.answers[-1] else 'reject'}"
        return str(value if rng.random() < 0.2 else abs(value + rng.choice((-1, 1)) * rng.randint(1, 40)))
