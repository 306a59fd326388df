"""Exercises of notebook 08: joint advantages, leave-one-out, the cost of crossing, returns, and reward hacking."""

from itertools import pairwise

from mas_lab.cells.credits import episode_return
from mas_lab.cells.grouping import group
from mas_lab.cells.normalization import normalize
from mas_lab.course.compare import agrees, asked, close, entries, need, same_rows, tables
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
ENOUGH, TOLD_NOTHING = 2.5, 2.4
"""Scores that a pair must reach: in 08.5 under the published rewards, in 08.6 under the kit's own."""


@exercise(
    "08.1",
    "The reward is joint: whose writer it was makes no difference to the number.",
    "One mean of the four returns, 1.5. Subtract it, and divide by nothing.",
)
def joint_by_hand(advantages):
    for agent in AGENTS:
        for earned, yours in zip(RETURNS, entries(advantages[agent], len(RETURNS), agent), strict=True):
            close(yours, earned - sum(RETURNS) / len(RETURNS), f"{agent}, the joint action of return {earned}")


@exercise(
    "08.2",
    "The mean of the others: the group's sum without the row itself, over one row less.",
    'total = table.groupby("group")["credit"].transform("sum"), and size likewise with "size".',
    "A group of one row has no others, and its row no advantage: set it to 0 at the end.",
)
def leave_one_out(marloo):
    for table in (group(one, ("task", "agent"), episode_return()) for one in tables()):
        same_rows(asked(marloo, table), normalize(table, center="loo", scale="none")["advantage"], table)


@exercise(
    "08.3",
    "One turn first. Aligned: g joint actions; crossed: every combination, g to the power of the agents.",
    "Every joint action of a turn opens a node of the next one, and each node asks every agent for g completions.",
    "branches = g if aligned, else g ** agents; joint actions: branches + branches**2 + ... (turns terms); nodes: "
    "1 + branches + ... (turns terms).",
)
def cost_of_a_tree(cost):
    def right(g, agents, turns, mode):
        branches = g if mode == "aligned" else g**agents
        opened = sum(branches**turn for turn in range(turns))
        return agents * g * opened, branches * opened

    sizes = (4, 2, 1), (8, 2, 1), (4, 3, 1), (2, 2, 2), (4, 2, 2), (2, 3, 3)
    agrees(cost, right, [(*size, mode) for size in sizes for mode in ("aligned", "cross")])


@exercise(
    "08.4",
    "Begin at the end: after the second turn nothing follows, so those returns are the rewards.",
    "R(a) = 1.0 + gamma * (2.0 + 0.0) / 2.",
)
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


@exercise(
    "08.5",
    "The published rule reads no text. Which words does it count, and whose?",
    "Four words that stand in both texts are overlap enough; the detailed one needs eight different words or more.",
    "Lengths are in characters here: the detailed text should have 1.6 to 3.2 times as many as the short one. A single "
    "transition pays 0.16.",
)
def game_the_published(pair):
    reward = scored(pair, "published")
    told = set(content(words(" ".join(pair)))) & set(content(words(story())))
    need(not told, f"{sorted(told)[:1]} stands in the story: nothing of it is to be told")
    need(reward >= ENOUGH, f"the published rule pays {reward:.2f} for it, and {ENOUGH} is asked for")
    return f"{reward:.2f} of 3 for telling nothing; our rule pays {scored(pair, 'ours'):.2f}"


@exercise(
    "08.6",
    "Faithful means: distinct words that stand in the story. Nobody asks in which order.",
    "Take people and things of different sentences: six words for the short text, a dozen for the detailed one.",
    "Some words in both texts for the overlap; in the detailed one transitions, each with a word of the story behind.",
)
def game_ours(pair):
    reward = scored(pair, "ours")
    told = {two for text in pair for two in pairwise(words(text))} & set(pairwise(words(story())))
    need(not told, f"{sorted(told)[:1]} stands in the story like this: break that, too")
    need(reward >= TOLD_NOTHING, f"our rule pays {reward:.2f} for it, and {TOLD_NOTHING} is asked for")
    return f"{reward:.2f} of 3 for a bag of words: a high score is a necessary sign, not a sufficient one"
