"""More agents cost in proportion to the turns that they take: calls of the env, rows, and words to be read."""

from collections import Counter

import pytest
from scripted import Scripted

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.tasks import make_env

PROBLEMS = str(data_dir() / "math" / "word_problems.jsonl")
TASKS, ROUNDS = 3, 2
SAID = {
    ("plan_path", "pocket"): ("f6 f6 f6 f6", "f6 f6 f6 f6"),  # beyond the edge: nobody moves, nobody arrives
    ("plan_path", "full"): (f"<moves>{'U ' * 19}U</moves>", "<moves>U</moves>"),
    ("math", "pocket"): ("1 2 3 answer 4", "reject"),
    ("math", "full"): ("so " * 100 + r"\boxed{-77}", "so " * 100 + "<verdict>reject</verdict>"),
}


class Counted:
    """An env whose calls are counted."""

    def __init__(self, env):
        self.env, self.calls = env, Counter()

    def __getattr__(self, name):
        value = getattr(self.env, name)
        if name not in ("start", "acting", "observe", "step"):
            return value

        def call(*given):
            self.calls[name] += 1
            return value(*given)

        return call


def played(name, size, agents):
    """The table of full-length episodes, and how often each function of the env was called."""
    options = {"data": PROBLEMS} if (name, size) == ("math", "full") else {}
    env = make_env(name, size=size, n_agents=agents, max_turns=ROUNDS, **options)
    counted = Counted(env)
    early, last = SAID[name, size]
    texts = dict.fromkeys(env.agents, early) | {"executor" if name == "plan_path" else "verifier": last}
    team = lab.Team({agent: Scripted(lambda *_, text=texts[agent]: text, context=50_000) for agent in env.agents})
    return lab.rollout(counted, team, env.tasks(TASKS, "train", 0), workers=0), counted.calls


@pytest.mark.parametrize(("name", "size"), SAID)
def test_the_cost_of_a_rollout_is_linear_in_its_turns(name, size):
    words = {}
    for agents in (2, 4, 8, 16):
        table, calls = played(name, size, agents)
        turns = TASKS * ROUNDS * agents
        assert len(table) == turns
        assert calls["observe"] == calls["step"] == turns  # once per row
        assert calls["acting"] <= 2 * turns and calls["start"] == TASKS
        words[agents] = int(table["prompt"].str.split().map(len).sum())
    assert words[8] - words[4] > 0
    assert words[16] - words[8] <= 1.25 * 2 * (words[8] - words[4])  # a square would make it 4 times as many
