"""Exercises of notebook 08: joint advantages, leave-one-out, the cost of crossing, returns, and reward hacking."""

from itertools import pairwise

from mas_lab.cells.credits import episode_return
from mas_lab.cells.grouping import group
from mas_lab.course.compare import CREDIT, agrees, close, entries, need, result_of, same_advantages, tables
from mas_lab.course.exercises import exercise
from mas_lab.tasks import make_env
from mas_lab.tasks.shared.wording import content, words

RETURNS = (2.4, 0.4, 1.2, 2.0)
"""Returns of the four joint actions in 08.1."""
AGENTS = ("short", "detailed")
BRANCHES = {
    0.5: {"a": 1.5, "b": 1.7, "a0": 2.0, "a1": 0.0, "b0": 0.5, "b1": -0.1},
    1.0: {"a": 2.0, "b": 1.8, "a0": 2.0, "a1": 0.0, "b0": 0.5, "b1": -0.1},
}
"""Returns of 08.4, by gamma: of two joint actions at the first turn, and of two after each of them."""
ENOUGH, ENOUGH_OURS = 2.5, 2.4
"""Scores that a pair must reach: in 08.5 under the published rewards, in 08.6 under the kit's own."""


@exercise("08.1")
def joint_by_hand(advantages):
    for agent in AGENTS:
        for expected, yours in zip(RETURNS, entries(advantages[agent], len(RETURNS), agent), strict=True):
            what = f"{agent}, the joint action of return {expected}"
            close(yours, expected - sum(RETURNS) / len(RETURNS), what, wrong={CREDIT: expected})


@exercise("08.2")
def leave_one_out(marloo):
    for table in (group(one, ("task", "agent"), episode_return()) for one in tables()):
        same_advantages(result_of(marloo, table), table, center="loo", scale="none")


@exercise("08.3")
def cost_of_a_tree(cost):
    def right(g, agents, turns, mode):
        branches = g if mode == "aligned" else g**agents
        opened = sum(branches**turn for turn in range(turns))
        return agents * g * opened, branches * opened

    sizes = (4, 2, 1), (8, 2, 1), (4, 3, 1), (2, 2, 2), (4, 2, 2), (2, 3, 3)
    agrees(cost, right, [(*size, mode) for size in sizes for mode in ("aligned", "cross")])


@exercise("08.4")
def returns_by_hand(returns):
    for gamma, right in BRANCHES.items():
        for name, worth in right.items():
            close(returns[gamma][name], worth, f"gamma {gamma}, joint action {name}")


def story() -> str:
    """Return the text of 08.5 and 08.6."""
    return make_env("tldr").tasks(1, "test", seed=0)[0].data["source"]


def scored(pair, rewards: str) -> float:
    """Return the reward of a (short, detailed) pair for that text."""
    env = make_env("tldr", rewards=rewards)
    [task] = env.tasks(1, "test", seed=0)
    return env.step(env.start(task), dict(zip(AGENTS, entries(pair, 2, "texts"), strict=True))).team_reward


@exercise("08.5")
def game_the_published(pair):
    reward = scored(pair, "published")
    copied = set(content(words(" ".join(pair)))) & set(content(words(story())))
    need(not copied, f"{sorted(copied)[:1]} is a word of the story: use no word of it")
    need(reward >= ENOUGH, f"the published rule pays {reward:.2f}; reach {ENOUGH}")
    return f"{reward:.2f} of 3 without a word of the story; our rule pays {scored(pair, 'ours'):.2f}"


@exercise("08.6")
def game_ours(pair):
    reward = scored(pair, "ours")
    copied = {two for text in pair for two in pairwise(words(text))} & set(pairwise(words(story())))
    need(not copied, f"{sorted(copied)[:1]} is a pair of words of the story: break it")
    need(reward >= ENOUGH_OURS, f"our rule pays {reward:.2f}; reach {ENOUGH_OURS}")
    return f"{reward:.2f} of 3 for a bag of words: a high score is necessary, but not sufficient"
