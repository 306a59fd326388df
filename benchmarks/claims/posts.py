"""Two summaries of a post with a reward that a copy cannot win, for the test of MAGRPO's claim (`README.md`).

`Posts` is `tldr` in full size with another reward. Leaves out: the published formula, which reads no post (`TLDR` with
`rewards="published"`), and the trainings (`run`).
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from mas_lab.env import Step
from mas_lab.tasks.shared.pair_reward import MARKER
from mas_lab.tasks.shared.wording import faithfulness, words
from mas_lab.tasks.tldr import TLDR

FILE = "data/tldr/posts.jsonl"
PAIRS = Path("runs/claims/posts/pairs.json")
"""Post -> pairs of summaries by the base, from which one agent learns the form."""
RUN, SPARED = 6, 0.2
"""Words of a run, and the share of copied runs that costs nothing."""


def copied(text: str, post: str) -> float:
    """Return the share of a text's runs of `RUN` words that the post has too."""
    said, known = words(text), words(post)
    runs, there = ([tuple(one[i : i + RUN]) for i in range(len(one) - RUN + 1)] for one in (said, known))
    return sum(map(set(there).__contains__, runs)) / max(1, len(runs))


def in_own_words(text: str, post: str) -> float:
    """Return 1 for a text that copies at most a fifth and has at most half of the post's words, falling to 0.

    The factors are 1 - max(0, copied - 0.2) / 0.8 and min(1, half of the post's words / the text's words).
    """
    length = min(1.0, len(words(post)) / 2 / max(1, len(words(text))))
    return (1 - max(0.0, copied(text, post) - SPARED) / (1 - SPARED)) * length


@cache
def pairs() -> dict[str, list[list[str]]]:
    """Return the pairs of each post."""
    return json.loads(PAIRS.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Posts(TLDR):
    """The joint reward is that of `tldr` times `in_own_words` of the worse text.

    An agent's own reward is that of its text alone: 0 if its length is out of range, else its faithfulness times
    `in_own_words`. Nothing uses that of a single agent. A single agent is shown the better pair of those that the base
    wrote about the post, with the marker between the texts.
    """

    size: str = "full"
    data: str = FILE

    def duty(self, agent: str) -> str:
        """Return the prompt of `tldr` with lengths below half of a post, and without the request for its words."""
        changed = {"in words of the text": "in your own words", "about 25": "about 18", "about 60": "about 45"}
        text = super().duty(agent)
        for old, new in changed.items():
            text = text.replace(old, new)
        return text

    def act(self, state: Any, actions: Mapping[str, str]) -> Step:
        step, goal = super().act(state, actions), self.goal
        first, second = (in_own_words(text, state.source) for text in step.state.drafts)
        own = {
            agent: fits * faithfulness(actions[agent], state.source, goal.precise, goal.dense) * worth
            for (agent, fits), worth in zip(step.local_rewards.items(), (first, second), strict=False)
        }
        reward = step.team_reward * min(first, second)
        return replace(step, team_reward=reward, local_rewards=own, success=reward >= self.succeeds_at)

    def demonstrate(self, state: Any, agent: str, rng: random.Random) -> str:
        if agent != "solo":
            return super().demonstrate(state, agent, rng)
        pair = Posts(self.size, data=self.data)
        return f" {MARKER} ".join(max(pairs()[state.source], key=lambda texts: pair.earned(state, texts)))

    def earned(self, state: Any, texts: list[str]) -> float:
        """Return the joint reward of a pair of texts."""
        return self.act(state, dict(zip(self.agents, texts, strict=True))).team_reward
