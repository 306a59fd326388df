# %% [markdown]
# # AT-GRPO: the candidates of one agent at one turn
#
# *Level: notebooks 00 to 04. Reading: 30 minutes. Compute: about 1 minute on two CPU cores.*
#
# In a team of several turns, two episodes of one task differ after the first word. By the second turn their agents are in different states and answer different questions. A comparison of their returns reinforces the agent that happened to be in the better state. AT-GRPO ([arXiv 2510.11062](https://arxiv.org/abs/2510.11062)) compares only answers to the same question: K candidates of one agent at one turn of one episode. The best one moves the state, and the policy learns from all K.
#
# Afterwards you can
#
# - write its group key, its credit and its tree, and say what fails without each;
# - compare the cost of a tree with that of whole episodes;
# - say which of its parts makes the team better. The answer is not the part in its name;
# - swap the roles of a trained team.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import pandas as pd

import mas_lab as lab
from mas_lab.demo import trials as demo
from mas_lab.paths import data_dir
from mas_lab.study.record import Recorded
from mas_lab.widgets.figures import learning_curves
from mas_lab.widgets.live import LiveCurve

STUDIES = data_dir() / "results" / "studies"
STEPS = 2 if SMOKE else demo.STEPS

# %% [markdown]
# ## By hand: five rows
#
# In one maze and one round, the planner made two proposals. The executor answered the better one with three plans. A proposal moves nobody, so it earns the team nothing. Its `local_reward` is what it would be worth if it were walked.
#
# | row | agent | turn | candidate | team_reward | local_reward |
# |---|---|---|---|---|---|
# | 0 | planner | 0 | 0 | 0 | 0.25 |
# | 1 | planner | 0 | 1 | 0 | 0.75 |
# | 2 | executor | 0 | 0 | 0.5 | 0.5 |
# | 3 | executor | 0 | 1 | 0 | 0 |
# | 4 | executor | 0 | 2 | 1.25 | 0.75 |
#
# The compared number is a mixture of both rewards (section 4.2 of the paper; α = 1 there and here),
#
# $$ R_c = \alpha\, r^{\text{team}}_c + r^{\text{local}}_c , $$
#
# and the advantage compares candidate $c$ with the K candidates of its group. The group is $(e, i, t)$: episode $e$, agent $i$, turn $t$ (equation 3):
#
# $$ A_c = \frac{R_c - \operatorname{mean}_K(R)}{\operatorname{std}_K(R)} . $$
#
# *By hand.* The planner's credits are 0.25 and 0.75: mean 0.5, deviation 0.25, advantages −1 and +1. The executor's credits are 1, 0 and 2: mean 1, deviation √(2/3) ≈ 0.82, advantages 0, −1.22 and +1.22.

# %% [markdown]
# *Predict:* now compare all five rows with each other, as a global baseline does. Their mean is 0.8. What happens to the planner's better proposal?

# %%
rows = pd.DataFrame(
    {
        "task": "maze",
        "episode": "maze-0",
        "agent": ["planner", "planner", "executor", "executor", "executor"],
        "turn": 0,
        "candidate": [0, 1, 0, 1, 2],
        "team_reward": [0, 0, 0.5, 0, 1.25],
        "local_reward": [0.25, 0.75, 0.5, 0, 0.75],
    }
)
KEYS = {"agent and turn": ("episode", "agent", "turn"), "task": ("task",)}
told = {name: lab.normalize(lab.group(rows, by=by, credit=lab.mixed())) for name, by in KEYS.items()}
shown = rows[["agent", "candidate"]].assign(credit=told["task"]["credit"])
shown.assign(**{f"advantage, by {name}": table["advantage"].round(2) for name, table in told.items()})

# %% [markdown]
# *Explain:* it gets a negative advantage. By task, both proposals are below the mean, because an executor can earn both rewards and a planner only one. So every proposal looks bad. By agent and turn the better proposal gets a positive advantage, whatever an executor may earn.
#
# **06.1** (5 minutes, easy) Here is a longer table: two mazes, two rounds each, and one maze drawn twice. Which columns name AT-GRPO's groups? Look at `prompt` while you choose.

# %%
LONG = pd.DataFrame(
    [
        {"task": task, "episode": episode, "turn": turn, "agent": agent, "candidate": candidate}
        | {"prompt": f"{task}{' moved' * turn} {agent}", "team_reward": 0.0, "local_reward": candidate / 2}
        for task, episode in (("a", "a-0"), ("a", "a-1"), ("b", "b-0"))
        for turn in (0, 1)
        for agent in ("planner", "executor")
        for candidate in (0, 1, 2)
    ]
)
### BEGIN SOLUTION
by = ("episode", "agent", "turn")
### STARTER
# by = ("episode", "agent")  # <- what breaks with this one?
### END SOLUTION
try:
    print(lab.group(LONG, by=by, credit=lab.mixed(), same_prompt=True)["group"].nunique(), "groups")
except lab.TableError as refused:
    print("refused:", refused)
lab.course.check("06.1", by)

# %% [markdown]
# With `same_prompt=True`, `at_grpo` checks its group key. With `(episode, agent)` alone, the second turn would be compared with the first. That is another question, so the cell refuses. Public code had this error.
#
# ## The tree
#
# The plan `tree(k)` is algorithm 1 of the paper. At each turn, the acting agent draws K candidates for one prompt, and each is scored. The best by `pick`, $c^* = \arg\max_c R_c$ (the first wins a tie), moves the state. The next agent sees the new state. All K are rows.

# %% [markdown]
# *Predict:* in the table of a tree, how many candidates of a node have `kept`? Is the kept one always the row with the largest advantage of its group?

# %%
env = lab.make_env("plan_path")
team = demo.make_team(env)
mazes = env.tasks(4, split="train", seed=0)
turns = lab.RECIPES["at_grpo"].advantages(lab.rollout(env, team, mazes, lab.tree(4), seed=0))

kept = turns.groupby("group")["kept"].sum()
best = turns["advantage"] == turns.groupby("group")["advantage"].transform("max")
print(
    f"{len(kept)} groups; kept in each: {kept.min()} to {kept.max()}; kept and best: {best[turns['kept']].mean():.0%}"
)
turns[["agent", "turn", "candidate", "kept", "completion", "credit", "advantage"]].head(8)

# %% [markdown]
# *Explain:* one, and always, because the pick and the comparison use the same number. `kept` says which candidate moved the state, `credit` is $R_c$, and `advantage` is $A_c$. In a group whose candidates all earned the same, all advantages are 0 and the first one moves the state.
#
# Walk through one tree. Each node shows what the agent heard, and all candidates. The kept one comes first and is shaded; equal ones are counted together. `what followed`, or →, opens the next node.

# %%
lab.RolloutViewer(turns, agents=env.agents, team=team)

# %% [markdown]
# **06.2** (10 minutes, medium) `pick` may be any function from a table of one node's candidates to a number for each. Write one that follows the mixed credit with α = 1. It must not keep an invalid answer (`valid` is False) if there is a valid one.


# %%
def pick(candidates):
    ### BEGIN SOLUTION
    credit = candidates["team_reward"] + candidates["local_reward"]
    return credit.where(candidates["valid"], credit.min() - 1)
    ### END SOLUTION


lab.course.check("06.2", pick)

# %% [markdown]
# **06.3** (6 minutes, medium) What does α do? A candidate that reached the goal by a detour may earn the team more, and itself less, than one on a shortest path. You know both rewards of two candidates. At which α are they worth the same?


# %%
def alpha_of_a_tie(team_1, local_1, team_2, local_2):
    ### BEGIN SOLUTION
    return (local_2 - local_1) / (team_1 - team_2)
    ### END SOLUTION


lab.course.check("06.3", alpha_of_a_tie)

# %% [markdown]
# *Predict:* α goes from 0 to 10. Whose advantages change, those of the planner or those of the executor?

# %%
for alpha in (0, 1, 10):
    credit = lab.mixed(alpha=alpha)
    compared = lab.normalize(lab.group(rows, by=KEYS["agent and turn"], credit=credit))
    print(
        f"alpha {alpha:2}:",
        compared.groupby("agent", sort=False)["advantage"].apply(lambda a: a.round(2).tolist()).to_dict(),
    )

# %% [markdown]
# *Explain:* only the executor's change, and only a little. A planner's candidates all earn the team 0, so α multiplies nothing: a planner learns from its local reward. With `mixed(local=0.0)`, the paper's outcome-only ablation, it learns nothing at all. The division by the deviation removes a common factor. So with a large α the local reward only breaks ties.
#
# ## What a tree costs
#
# At each turn `episodes(K)` and `tree(K)` sample K completions for a maze. But these answer different prompts.

# %% [markdown]
# *Predict:* K = 8, with two agents and four turns. How many different prompts does one maze have under each plan?

# %%
cost = {}
for name, plan in {"episodes(8)": lab.episodes(8), "tree(8)": lab.tree(8)}.items():
    table = lab.rollout(env, team, mazes, plan, seed=0)
    read = table.drop_duplicates(["task", "prompt"])["prompt_ids"].map(len).sum()
    said = table["completion_ids"].map(len).sum()
    prompts = table.groupby("task")["prompt"].nunique().mean()
    cost[name] = {"completions": len(table), "prompts a maze": prompts, "tokens said": said, "tokens read": read}
pd.DataFrame(cost).T.round(1)

# %% [markdown]
# *Explain:* all episodes start from one prompt and then go different ways: at most 1 + 8 × 7 = 57 different prompts. In the tree one prompt serves all K candidates: at most 2 × 4 = 8. `tokens read` counts equal prompts once, as the sampler and the update do. The tree also has fewer completions, because the best of 8 soon reaches the goal. In the recorded study below, a run with the tree took half the processor time of a run without, at equal sampled tokens.
#
# **06.4** (10 minutes, medium) Write these counts for any team. Agents speak one after the other, each once a turn, and nothing ends early. Return three numbers: the completions (of either plan), the different prompts of `tree(k)`, and the largest number of different prompts of `episodes(k)`.


# %%
def counts(k, agents, turns):
    ### BEGIN SOLUTION
    calls = agents * turns
    return k * calls, calls, 1 + k * (calls - 1)
    ### END SOLUTION


lab.course.check("06.4", counts)

# %% [markdown]
# ## Training
#
# The loss is PPO's, per token. It is computed for each policy, over the rows of all agents that it plays (notebook 04). The paper's loss is a mean over groups of
#
# $$ -\frac{1}{K}\sum_{c=1}^{K} \min\big(\rho_c A_c,\ \operatorname{clip}(\rho_c, 1-\varepsilon, 1+\varepsilon)\,A_c\big), $$
#
# where ρ is a token's probability now over its probability when it was sampled, and ε = 0.2. One team has **one set of weights for both roles**, another has **own weights for each role**. Each takes 20 steps of 32 mazes with K = 8, about 20 seconds.
#
# **What to expect.** Held-out success rises from about 0.5 to 0.9, most of it in the first five steps. Three recorded seeds with shared weights: 0.93, 0.91, 0.93. With own weights, at the same number of tokens, it is about the same (0.93, 0.92, 0.93).


# %%
def learn(team, name):
    """Twenty steps, with held-out success on the way."""
    curve, tokens = LiveCurve(name), 0
    curve.add(tokens, demo.held_out(env, team, tasks=8 if SMOKE else 64))
    for report in lab.train(env, team, "at_grpo", steps=STEPS, seed=0, **demo.SETTINGS):
        tokens += report.tokens
        if (report.step + 1) % demo.SCORE_EVERY == 0:
            curve.add(tokens, demo.held_out(env, team, tasks=8 if SMOKE else 64))
    return report


shared, roles = demo.make_team(env), demo.make_team(env, per_agent=True)
report = learn(shared, "one set of weights")

# %%
last_of_roles = learn(roles, "weights of its own for each role")

# %% [markdown]
# Why does the curve end there, and why did training look better?

# %% [markdown]
# *Predict:* which mazes does the trained team fail? Now look at its own training episodes of the last step. Did it solve more or fewer of them than of held-out mazes?

# %%
from mas_lab.tasks.shared.maze import distances

held_out = env.tasks(16 if SMOKE else demo.HELD_OUT, "test", seed=0)
away = {task.id: distances(env.start(task).floor)[env.start(task).start] for task in held_out}
scores = lab.evaluate(env, shared, held_out, k=4).drop_duplicates("task")
print(f"training episodes of the last step: {report.success:.2f}; held-out: {scores['success'].mean():.2f}")
moves = pd.cut(scores["task"].map(away), [2, 4, 6, 16], labels=["3 or 4", "5 or 6", "7 and more"])
scores.groupby(moves.rename("moves to the goal"), observed=True)["success"].agg(success="mean", mazes="size").round(2)

# %% [markdown]
# *Explain.* **Why 0.93 and not 1:** the team solves nearly all mazes of up to six moves. Mazes of seven moves and more take at least two rounds, and it solves little more than half of them. They are rare, in training too. Notebook 00 lowered the temperature, and that solved no more. So it lacks planning, not luck.
#
# **Why training looked better:** there the best of eight candidates moves the state at each turn. A best of K is not a success rate. Measure success on held-out episodes with one candidate per turn.
#
# ## Roles
#
# Does each policy know its own role, or the task? With `lab.evaluate(..., swap=...)` each policy plays the other's role. AT-GRPO reports a collapse, from 96 to 6 of 100 on its Plan-Path.

# %% [markdown]
# *Predict:* three teams play in each other's roles: untrained, one set of weights, own weights. Which of them lose success?

# %%
teams = {"untrained": demo.make_team(env, per_agent=True), "one set of weights": shared, "weights of their own": roles}
swapped = {
    name: {
        "in its role": lab.evaluate(env, one, held_out, k=4)["success"].mean(),
        "in the other's": lab.evaluate(env, one, held_out, k=4, swap=("planner", "executor"))["success"].mean(),
    }
    for name, one in teams.items()
}
pd.DataFrame(swapped).T.round(2)

# %% [markdown]
# *Explain:* only own weights can lose anything, and they lose a few points. Recorded over five seeds: 0.89 to 0.93 in their roles, 0.85 to 0.90 in each other's. That is not the paper's collapse. The likely reason is the start: one pocket model had seen both roles before, and here they still do nearly the same. Policies that start as one and then learn very different roles have more to forget.
#
# ## Which part of it is it?
#
# `grpo` and `at_grpo` differ in four changes. The recorded study makes them one at a time, each for the same 60,000 sampled tokens, with ten seeds:
#
# | arm | credit of a row | who is compared | plan |
# |---|---|---|---|
# | team return | the episode's return | the task's episodes | `episodes(8)` |
# | own reward | the return + the row's own local reward | the task's rows | `episodes(8)` |
# | by agent and turn | the same | the task's rows of one agent at one turn | `episodes(8)` |
# | tree | α r_team + r_local of the row | the candidates of one prompt | `tree(8)` |
# | tree, outcome only | r_team alone | the candidates of one prompt | `tree(8)` |

# %% [markdown]
# *Predict:* from the first row to the tree, success rises by 0.19. How much of it comes from the own reward, how much from grouping by agent and turn, and how much from the tree?

# %%
ladder = ["team return", "own reward", "by agent and turn", "tree", "tree, outcome only"]
recorded = Recorded(STUDIES / "at_grpo").curves.query("task == 'maze' and arm in @ladder")
board = lab.AblationBoard(recorded.rename(columns={"arm": "recipe", "task": "env"}), over="tokens")
board.figure()

# %%
spent = Recorded(STUDIES / "at_grpo").table.query("task == 'maze' and phase == 'compare'").set_index("arm")
spent = spent.groupby(level=0)[["optimizer_steps", "seconds"]].mean()
board.table.set_index("recipe")[["final", "final_low", "final_high"]].join(spent).round(2)

# %% [markdown]
# *Explain.* `final` is the interquartile mean of ten runs, and `final_low` and `final_high` are its 95 % interval. In the figure every run is a dot. On the right is the difference to "team return", seed by seed.
#
# - **Each row's own reward** takes 0.71 to 0.87: that is 0.16 of the 0.19.
# - **Grouping by agent and turn**, the two letters in the name, adds nothing to it: 0.85. Without candidates for one prompt, rows of one agent at one turn of eight episodes are still in eight different states.
# - **The tree** takes it to 0.91. But look at `optimizer_steps`: at equal *tokens* it makes twice as many steps, because its episodes are fewer and shorter. Tokens, episodes and optimizer steps cannot all be equal. A study must say which one is.
# - **With the outcome alone** it keeps less than half: 0.79. A planner's group is then always flat.
#
# How many candidates? K = 2, 4 and 16 end at 0.91, 0.93 and 0.92. Each has three seeds, too few for an interval: K hardly matters.
#
# Which part of the tree helps? Is it that candidates answer one prompt, or that the best of them moves the state? A tree whose *first* candidate moves the state has only the first part.

# %% [markdown]
# *Predict:* without following the best, does the tree still reach 0.91, or does it fall back to 0.87, the result of the own reward alone?

# %%
follow = lab.AblationBoard(STUDIES / "follow")
follow.table.set_index("recipe")[["final", "final_low", "final_high"]].round(2)

# %%
by_seed = follow.pairs.set_index("seed")["final"].round(3)
by_seed.to_frame("the first moves on, minus the best moves on").T

# %% [markdown]
# *Explain:* it falls back to 0.87, and is below the other in nine of ten seeds, by 0.03 (95 % interval 0.01 to 0.05). So the rest comes from *following* the best, not from the same prompt. There are two possible reasons. The best of eight soon reaches the goal, so more episodes fit into the same tokens: it makes 37 optimizer steps where the other makes 21. Also, its later turns start from good states. These runs cannot separate the two.
#
# **06.5** (8 minutes, easy) Put a number on the negative result. `share(final)` gets the final success of each arm, by name. The whole gain goes from "team return" to "tree". Return, by name, which part of it each of the other arms keeps. Which ablation keeps most?

# %%
finals = board.table.set_index("recipe")["final"].to_dict()


def share(final):
    ### BEGIN SOLUTION
    low, high = final["team return"], final["tree"]
    return {arm: (one - low) / (high - low) for arm, one in final.items() if arm not in ("team return", "tree")}
    ### END SOLUTION


lab.course.check("06.5", share, finals)

# %% [markdown]
# ## Where the tree does most of it: sokoban
#
# A box in a corner cannot be pulled back, so one bad turn loses the game. `sokoban` has the same two roles. Its pocket model starts at 0.27 and takes 80 steps, so we show recorded runs. Every thin line is a seed, and the thick one is their mean.

# %%
curves = pd.read_csv(data_dir() / "results" / "sokoban" / "curves.csv").assign(recipe="sokoban, at_grpo")
learning_curves(curves)

# %% [markdown]
# *Predict:* here is the same ladder at 100,000 tokens. In the maze, the own reward gave most of the gain. What do you expect here?

# %%
sokoban = lab.AblationBoard(STUDIES / "sokoban")
sokoban.runs.pivot(index="recipe", columns="seed", values="final").reindex(sokoban.table["recipe"]).round(2)

# %% [markdown]
# *Explain:* here the tree gives most of the gain: 0.62 to 0.67, where the three others lie between 0.39 and 0.52. This holds in each of three seeds, too few for an interval. Our interpretation: following the best keeps episodes alive after the first bad push, so training sees later turns at all. Success stops rising near 0.75. Rooms of six moves and more were hardly ever solved at the start, and what is never solved is never reinforced.

# %%
lab.course.progress("06")

# %% [markdown]
# ## What to remember
#
# 1. Compare answers to the same prompt. The group is (episode, agent, turn), and `same_prompt=True` checks it.
# 2. In the maze most of the gain comes from each row's own reward. The tree adds the rest by following the best, and grouping alone adds nothing. In sokoban most of the gain comes from the tree.
# 3. A best of K is no success rate. Measure on held-out episodes.
#
# Papers: AT-GRPO, [arXiv 2510.11062](https://arxiv.org/abs/2510.11062), section 4.2 (mixed reward), equation 3 (groups and advantages), Algorithm 1 (the tree); GRPO, [arXiv 2402.03300](https://arxiv.org/abs/2402.03300), equation 3. `data/results/studies/at_grpo` has the studies, with every run.
#
# Next: `07_dr_mas` samples no trees. It asks by whose mean an agent is judged.
