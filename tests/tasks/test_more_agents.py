"""More agents cost in proportion to the turns that they take: rows, and words to be read."""

import pytest
from scripted import Scripted

import mas_lab as lab
from mas_lab.paths import data_dir

TASKS, ROUNDS = 3, 2
SAID = {
    ("plan_path", "pocket"): ("f6 f6 f6 f6", "f6 f6 f6 f6"),  # beyond the edge: nobody moves, nobody arrives
    ("plan_path", "full"): (f"<moves>{'U ' * 19}U</moves>", "<moves>U</moves>"),
    ("math", "pocket"): ("1 2 3 answer 4", "reject"),
    ("math", "full"): ("so " * 100 + r"\boxed{-77}", "so " * 100 + "<verdict>reject</verdict>"),
}


@pytest.mark.parametrize(("name", "size"), SAID)
def test_the_cost_of_a_rollout_is_linear_in_its_turns(name, size):
    options = {"data": str(data_dir() / "math" / "word_problems.jsonl")} if (name, size) == ("math", "full") else {}
    words = {}
    for agents in (2, 4, 8, 16):
        env = lab.make_env(name, size=size, n_agents=agents, max_turns=ROUNDS, **options)
        early, last = SAID[name, size]
        texts = dict.fromkeys(env.agents, early) | {"executor" if name == "plan_path" else "verifier": last}
        team = lab.Team({agent: Scripted(lambda *_, text=texts[agent]: text, context=50_000) for agent in env.agents})
        table = lab.rollout(env, team, env.tasks(TASKS, "train", 0))
        assert len(table) == TASKS * ROUNDS * agents
        words[agents] = int(table["prompt"].str.split().map(len).sum())
    assert words[8] - words[4] > 0
    assert words[16] - words[8] <= 1.25 * 2 * (words[8] - words[4])  # a square would make it 4 times as many
