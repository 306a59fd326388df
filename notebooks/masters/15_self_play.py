# %% [markdown]
# # Self-play: better than whom?
#
# *Level: notebooks 00 to 04. Reading: 15 minutes. Compute: about 1 minute on two CPU cores.*
#
# In a game nothing is shared. The team earns 0, and what a player wins is its `local_reward`. In **self-play** a player learns against copies of itself. Its reward then has no fixed scale: it compares the player with an opponent that also changes.
#
# Afterwards you can
#
# - train a player against a frozen copy of itself, and with one policy on both sides;
# - tell a game in which later players beat all earlier ones from a game in which they run in a circle;
# - measure a player by what its best opponent would win, and say what an entropy bonus does to that number.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import tempfile

import numpy as np
import pandas as pd
from plotly import express as px

import mas_lab as lab
from mas_lab.course import games
from mas_lab.paths import data_dir
from mas_lab.widgets.figures import LAYOUT, PALETTE

# %% [markdown]
# ## A race
#
# `Race` is a small game. `left` and `right` answer the same sum at once and do not see each other. A player who alone is right wins 1 from the other. If left is right in a share $s$ of the sums and right in a share $r$, left wins on average
#
# $$ s\,(1 - r) - r\,(1 - s) = s - r. $$
#
# First, the opponent is *frozen*: a copy of left's own weights that does not learn. After ten steps the copy is renewed.
#
# The plan is a tree. Left's K candidates meet the *same* answer of the opponent. So the luck of the opponent is common to the group, and the mean removes it.

# %% [markdown]
# *Predict:* left starts with about half of its answers right, against its equal. The opponent is renewed in the middle. Draw two lines over training: left's share of right answers, and what it wins.

# %%
race = games.Race()
sums = race.tasks(8 if SMOKE else 64, "test", seed=0)


def standing(left, right):
    """Left's share of right answers, and what it wins on average."""
    played = lab.rollout(race, lab.Team({"left": left, "right": right}), sums, lab.episodes(4), seed=9)
    played = played[played["agent"] == "left"]
    return {
        "right answers": played["info"].map(lambda told: told["left"]).mean(),
        "wins": played["local_reward"].mean(),
    }


left, right = lab.load_policy(race.pocket, lr=3e-4), lab.load_policy(race.pocket)
line = {"start": standing(left, right)}
for generation in (1, 2):
    player = lab.Team({"left": left, "right": right}, frozen="right")
    for _ in lab.train(race, player, "at_grpo", steps=2 if SMOKE else 10, seed=generation, tasks=16):
        pass
    line[f"generation {generation}, against the frozen copy"] = standing(left, right)
    with tempfile.TemporaryDirectory() as folder:
        left.save(folder)
        right = lab.load_policy(folder)
    line[f"generation {generation}, against a new copy"] = standing(left, right)
pd.DataFrame(line).T.round(2)

# %% [markdown]
# *Explain:* right answers rise to about 0.9 and stay there. The winnings rise to about 0.4 and fall to 0 when the opponent is renewed. **A return in self-play is no measure of skill.** Here another number is: the share of right answers. Since left wins $s - r$, who has the larger share wins, against everybody. Such a game is *transitive*.
#
# ## Rock, paper, scissors
#
# Not every game has such a number. Paper beats rock, scissors beat paper, and rock beats scissors. A player is now three shares, such as $p$ = (0.5, 0.3, 0.2) for rock, paper and scissors. Against the shares $q$ it wins
#
# $$ p_R\,(q_S - q_P) + p_P\,(q_R - q_S) + p_S\,(q_P - q_R). $$
#
# *By hand:* against $q$ = (0.2, 0.5, 0.3) this is 0.5 · (−0.2) + 0.3 · (−0.1) + 0.2 · 0.3 = −0.07.
#
# **15.1** (4 minutes, easy) Write it. `p` and `q` are lists of three shares.


# %%
def winnings(p, q):
    """What shares p of rock, paper and scissors win on average against shares q."""
    ### BEGIN SOLUTION
    return p[0] * (q[2] - q[1]) + p[1] * (q[0] - q[2]) + p[2] * (q[1] - q[0])
    ### END SOLUTION


lab.course.check("15.1", winnings)

# %% [markdown]
# Now one policy plays **both sides**, `lab.Team.shared`, and learns from both. `lab.own_return()` credits each row with what its own player won. (The pocket model knows digits only: 0, 3, 6 and 9 count as rock, 1, 4 and 7 as paper, 2, 5 and 8 as scissors. Its prompt is the same in every round.)

# %% [markdown]
# *Predict:* the model starts with 0.42 rock, 0.27 paper and 0.31 scissors. It always plays against itself, so it wins 0 on average at every step. Draw the three shares over 30 steps.

# %%
game = games.RockPaperScissors()
recipe = lab.RECIPES["dr_mas"].replace(credit=lab.own_return())


def self_play(recipe):
    """One training with one policy on both sides; the share of each throw among the readable answers of each step."""
    team, rows = lab.Team.shared(lab.load_policy(game.pocket, lr=5e-4), game.agents), []
    for report in lab.train(game, team, recipe, steps=2 if SMOKE else 30, seed=0, tasks=16):
        thrown = [told[agent] for told, agent in zip(report.turns["info"], report.turns["agent"], strict=True)]
        said = pd.Series(thrown)
        shares = said.value_counts(normalize=True).reindex(games.THROWS, fill_value=0.0)
        rows.append({"step": report.step, **shares, "unreadable": said.isna().mean()})
    return pd.DataFrame(rows)


def lines(table, names, title):
    figure = px.line(table, x="step", y=list(names), color_discrete_sequence=PALETTE)
    return figure.update_layout(**LAYOUT, height=360, yaxis_range=[0, 1], yaxis_title=title, legend_title="")


plain = self_play(recipe)
lines(plain, games.THROWS, "share of the answers")

# %% [markdown]
# *Explain:* it runs in a circle. Rock is the most common throw at the start, so paper earns most, and its share rises. Then scissors earn most, then rock again. The gradient always points to what beats the *present* player. In all five recorded seeds the leading throw goes from rock to paper to scissors, and in three of them no further.

# %% [markdown]
# *Predict:* the player of each step meets the players of all steps. Does the last one beat the first? Does each beat the one five steps before?

# %%
chosen = plain[list(games.THROWS)].iloc[::5]
met = [[games.winnings(one, other) for other in chosen.to_numpy()] for one in chosen.to_numpy()]
pd.DataFrame(met, index=chosen.index, columns=[f"against step {step}" for step in chosen.index]).round(2)

# %% [markdown]
# *Explain:* in our run nearly every player beats the one before it. Yet the last is not the best: it loses to some older player, as in all five recorded seeds. "Better than before" does not add up, because the game is not transitive. A curve of winnings against the previous version shows progress here, and there is none.
#
# So measure a player by its *worst* case. The **exploitability** of $p$ is what the best opponent wins against it. It is 0 for (1/3, 1/3, 1/3), and 1 for a player who always says the same.
#
# **15.2** (4 minutes, easy) Write it. It is enough to try the three pure throws as opponents: a mixture of them wins no more than the best of them.


# %%
def exploitability(p):
    """What the best of the three throws wins on average against the shares p."""
    ### BEGIN SOLUTION
    return max(p[2] - p[1], p[0] - p[2], p[1] - p[0])
    ### END SOLUTION


lab.course.check("15.2", exploitability)

# %% [markdown]
# ## One argument: the entropy bonus
#
# The loss `lab.clipped(0.2, entropy=0.1)` adds a bonus: 0.1 times the entropy of the distribution of each token. It pulls the player back towards all throws, most where a throw has become rare.

# %% [markdown]
# *Predict:* with the bonus, does the circle become larger, smaller, or slower? And what does the bonus cost?

# %%
bonus = self_play(recipe.replace(loss=lab.clipped(0.2, entropy=0.1)))
both = pd.DataFrame(
    {
        name: [games.exploitability(shares) for shares in table[list(games.THROWS)].to_numpy()]
        for name, table in (("no bonus", plain), ("bonus 0.1", bonus))
    }
).rename_axis("step")
lines(both.reset_index(), both.columns, "exploitability")

# %%
recorded = pd.read_csv(data_dir() / "results" / "self_play" / "shares.csv")
throws = list(games.THROWS)
recorded["unreadable"] = 1 - recorded[throws].sum(axis=1)
recorded["exploitability"] = [games.exploitability(shares / shares.sum()) for shares in recorded[throws].to_numpy()]
last = recorded.query("step >= 20").groupby(["entropy", "seed"])[["exploitability", "unreadable"]].mean()
last.unstack("seed").round(2)

# %% [markdown]
# *Explain:* the circle nearly vanishes. The table has the means of steps 20 to 29, over five seeds and three weights of the bonus. Without it the player ends with an exploitability of 0.58 to 0.99, with a weight of 0.1 with 0.09 to 0.24. The cost: the bonus also rewards answers that nobody can read. With 0.1 they are 0.01 to 0.04 of all answers, with 0.3 they are 0.16 to 0.24, and the exploitability is no lower. These are five seeds at one learning rate.
#
# A second way out needs no bonus: keep the past selves. The circle visits all throws, so the *average* of all past players is near the middle. Fictitious play (Brown 1951) answers this average instead of the last player.
#
# **15.3** (6 minutes, medium) `past` is a list of players, each with three shares. One of them is drawn at random as the opponent. Return the throw that wins most against it: "rock", "paper" or "scissors".


# %%
def answer_to(past):
    """The throw that wins most on average against a random one of the past players."""
    ### BEGIN SOLUTION
    rock, paper, scissors = np.mean(past, axis=0)
    wins = {"rock": scissors - paper, "paper": rock - scissors, "scissors": paper - rock}
    return max(wins, key=wins.get)
    ### END SOLUTION


lab.course.check("15.3", answer_to)

# %% [markdown]
# *Predict:* how exploitable is the average player of the training without a bonus, compared with its last player?

# %%
players = plain[throws].to_numpy()
measured = {"the last player": players[-1], "the average of all": players.mean(axis=0)}
pd.Series({name: games.exploitability(shares) for name, shares in measured.items()}).round(2)

# %% [markdown]
# *Explain:* less. In the recorded seeds the last player has 0.60 to 1.00, and the average of all 30 has 0.05 to 0.28. To play the average, keep the weights of all steps and draw one set per game.
#
# Games of other libraries train in the same way: `examples/textarena_env.py` and `examples/pettingzoo_env.py` show how.

# %%
lab.course.progress("15")

# %% [markdown]
# ## What to remember
#
# 1. In self-play a return compares a player with its opponent. Renew the opponent, and the return falls to 0 with the same player.
# 2. "Beats its predecessor" is progress only in a transitive game. Ask who beats whom, over all generations.
# 3. Exploitability is a fixed scale. An entropy bonus keeps it low, and so does the average of past players.
#
# Papers: Balduzzi and others, [arXiv 1901.08106](https://arxiv.org/abs/1901.08106) (transitive and cyclic games); Lanctot and others, [arXiv 1711.00832](https://arxiv.org/abs/1711.00832) (answers to mixtures of past policies).
#
# Next: `16_tools`.
