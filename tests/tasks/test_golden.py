"""Problems, prompts, pictures, rewards and demonstrations never move: models and recorded results rely on them."""

import hashlib
import random

import pytest

from mas_lab.paths import data_dir
from mas_lab.tasks import make_env

NOISE = ("", "answer 3", "1 2 3 answer 4", "approve", "approve reject", "a1 b2", "<moves>U R</moves>", "\\boxed{3}")
DATA = {"math": "math/word_problems.jsonl", "tldr": "tldr/posts.jsonl", "arxiv_intro": "arxiv/abstracts.jsonl"}
GOLDEN = {
    "plan_path": "b9dc90809e364dc7", "plan_path size=6 n_agents=4": "fbea91aa157454de",
    "plan_path single_agent=1": "bbd989fee8df50eb", "math": "cef7aeb2346cbe8e",
    "math fixer=1 max_turns=2": "f053caa08bc2f825", "math size=9 n_agents=5": "eea3f5e7871acf21",
    "math_tool": "5307580e1dbfb28d", "math_tool size=7 single_agent=1": "6a3ecab25ee888fe",
    "search": "929e7171b08df965", "search size=3": "d51be234d694b046", "search single_agent=1": "93f1d13b64baee3d",
    "tldr": "92b187b75f6cb4ab", "tldr size=8": "de9c5b0787af292f", "ladder n_agents=3": "9e6aaad27bb56b8f",
    "code_tests": "aaf4d67795d1c3ce", "code_pair max_turns=2": "ed1cef3b43ae0a7e",
    "code_pair max_turns=2 feedback=plain single_agent=1": "ebe6efcbc6411220",
    "code_pair teamwork=in_turn": "caf9fdd3b46ddd89", "finisher": "605540888ce48764",
    "arxiv_intro max_turns=2": "46c4575328b80d3f", "paid_help": "b7063d594f484712", "cascade": "be067d3446313edf",
    "stakes": "2847ec2de617e471", "sokoban": "0bcb0b74c66acbd0", "sokoban boxes=2 single_agent=1": "fb8ec70ac9dc5383",
    "sudoku": "2c99e4e0527872aa", "sudoku size=9 single_agent=1": "f18fc540d57c41e6",
    "plan_path size=full n_agents=3 rewards=published": "9ee62e8fb9d9594a",
    "sokoban size=full rewards=published": "d58b51f97888b589",
    "sudoku size=full side=4 rewards=published": "0e4768d965c11ad9",
    "math size=full n_agents=4 fixer=1": "3ae5c5e837799c11", "search size=full rewards=published": "a4e965d88822fcad",
    "tldr size=full rewards=published": "a5509080b7a77db5", "arxiv_intro size=full max_turns=2": "19f69807ba3db4ca",
    "ladder size=words n_agents=3": "a0af2bd1b52cc039", "paid_help size=words": "ed382d26fd355b14",
    "finisher size=words": "c1514fb62e2aa654", "cascade size=words": "fe98895a535c5177",
    "stakes size=words": "4dfe8d26ae166a26", "math size=words fixer=1": "3e4561192a356dfa",
}  # fmt: skip


def played(env) -> str:
    """A hash of tasks of two splits, each played once, by the env's own demonstrations and now and then by noise."""
    told = hashlib.sha256(repr((env.agents, env.max_turns, env.max_return, env.max_tokens, env.words)).encode())
    for split in ("train", "test"):
        rng = random.Random(split)
        for task in env.tasks(2 if getattr(env, "size", 0) == "full" else 12, split, seed=3):
            told.update(repr((task.id, dict(task.data))).encode())
            state, done = env.start(task), False
            while not done:
                actions = {}
                for agent in env.acting(state):
                    told.update(repr(env.observe(state, agent)).encode())
                    own = rng.random() < 0.7
                    actions[agent] = env.demonstrate(state, agent, rng) if own else rng.choice(NOISE)
                step = env.step(state, actions)
                paid = [float(reward) for reward in (step.team_reward, *step.local_rewards.values())]
                told.update(repr((actions, paid, dict(step.valid), step.success, step.done)).encode())
                state, done = step.state, step.done
    return told.hexdigest()[:16]


@pytest.mark.parametrize(("options", "expected"), GOLDEN.items())
def test_nothing_moves(options, expected):
    name, *rest = options.split()
    flags = {"single_agent": bool, "fixer": bool}
    options = {k: flags.get(k, int)(int(v)) if v.isdigit() else v for k, v in (one.split("=") for one in rest)}
    if options.get("size") == "full" and name in DATA:
        options["data"] = str(data_dir() / DATA[name])
    assert played(make_env(name, **options)) == expected
