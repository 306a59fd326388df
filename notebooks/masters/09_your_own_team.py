# %% [markdown]
# # Your own team
#
# *Level: you have done 00 to 04; 06 to 08 help. Reading: 40 minutes. Compute: about 2 minutes on two CPU cores.*
#
# In this notebook you build a new task: its rules, roles, prompts and rewards. You make a model for it in a minute, and train a team on it. Then you write a plan, a credit and a loss that the kit does not have. Everything stays in this notebook; nothing is registered anywhere.
#
# At the end you will be able to write an environment of your own and check it. You can make a pocket model for it, train a team, and take the place of one agent. You can change any of the four cells in about ten lines.

# %% tags=["install"]
needs = ("trl>=1.15,<1.17",)

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %% tags=["env"]
import random
import zlib
from dataclasses import dataclass, replace

import pandas as pd
from IPython.display import display

import mas_lab as lab
from mas_lab.contrib import programs
from mas_lab.paths import data_dir
from mas_lab.widgets.figures import dialogue, learning_curves
from mas_lab.widgets.live import LiveCurve

RECORDS = data_dir() / "results" / "own_team"

pd.set_option("display.max_colwidth", None)

# %% [markdown]
# ## The task: find an hour
#
# Ann and Ben look for an hour, 1 to 9, at which both are free. Each knows only their own four free hours, and hears what was said. They speak in turn, one hour at a time, at most three times each. An agent that repeats the last hour agrees to it. If both are free then, the meeting is fixed, and the team earns
#
# $$ r = 1 - 0.1\,(m - 2), $$
#
# where $m$ is the number of hours said until then. An immediate agreement ($m = 2$) pays 1, and one with the last word ($m = 6$) pays 0.6. Everything else earns 0. This is one number for both, at the end. Each agent also has its own reward for each hour it says: 1 if it is free at that hour.
#
# *By hand:* Ann is free at 2, 5, 7 and 8, Ben at 1, 5, 6 and 9.
#
# | said by | hour | team reward | own reward | |
# |---|---|---|---|---|
# | Ann | 7 | 0 | 1 | |
# | Ben | 6 | 0 | 1 | he is not free at 7, and proposes |
# | Ann | 5 | 0 | 1 | |
# | Ben | 5 | 0.8 | 1 | $m = 4$ |
#
# ## The environment: five pure functions
#
# An environment (`lab.Env`) is an object with some constants and five functions. *Pure* means that they get a state and return a new one, draw no random numbers, and remember nothing. So a plan may go back to any state and try something else, and steps may run in threads.
#
# | function | returns |
# |---|---|
# | `tasks(n, split, seed)` | n different problems; `train` and `test` share none |
# | `start(task)` | the first state |
# | `acting(state)` | the agents that speak now: one, or several at once and unseen |
# | `observe(state, agent)` | the agent's prompt, as chat messages |
# | `step(state, actions)` | the new state and the rewards |

# %% tags=["env"]
HOURS = range(1, 10)


@dataclass(frozen=True)
class State:
    free: dict  # agent -> its free hours
    said: tuple = ()  # the hours said so far; 0 is no hour


@dataclass(frozen=True)
class Rules:
    """Ann and Ben look for an hour at which both are free; each knows their own hours alone, and they speak in turn."""

    prompt: str = "free {free} said {said} {agent}"

    agents = ("ann", "ben")
    max_turns = 3  # of each agent
    max_return = 1.0
    max_tokens = 2  # an hour, and the token that ends the answer
    pocket = ""  # no pocket model yet

    def tasks(self, n, split, seed):
        rng, found = random.Random(f"meeting {split} {seed}"), {}
        while len(found) < n:
            free = {agent: sorted(rng.sample(HOURS, 4)) for agent in self.agents}
            name = "ann {} ben {}".format(*("".join(map(str, hours)) for hours in free.values()))
            held_out = zlib.crc32(name.encode()) % 5 == 0  # the content decides the split
            if set(free["ann"]) & set(free["ben"]) and held_out == (split == "test"):
                found[name] = lab.Task(name, free)
        return list(found.values())

    def start(self, task):
        return State(dict(task.data))

    def acting(self, state):
        return (self.agents[len(state.said) % 2],)

    def observe(self, state, agent):
        free, said = " ".join(map(str, state.free[agent])), " ".join(map(str, state.said)) or "nothing"
        return [{"role": "user", "content": self.prompt.format(free=free, said=said, agent=agent)}]

    def step(self, state, actions):
        [(agent, text)] = actions.items()
        hour = int(text) if text in map(str, HOURS) else 0
        said, agreed = (*state.said, hour), hour > 0 and state.said[-1:] == (hour,)
        good = agreed and all(hour in free for free in state.free.values())
        return lab.Step(
            state=State(state.free, said),
            team_reward=1.0 - 0.1 * (len(said) - 2) if good else 0.0,
            local_rewards={agent: float(hour in state.free[agent])},
            valid={agent: hour > 0},
            success=good,
            done=agreed or len(said) == 2 * self.max_turns,
        )


# %% [markdown]
# An environment needs no model. Let us play the dialogue from above with it:

# %%
env = Rules()
state, rows = State({"ann": [2, 5, 7, 8], "ben": [1, 5, 6, 9]}), []
for hour in ("7", "6", "5", "5"):
    [agent] = env.acting(state)
    step = env.step(state, {agent: hour})
    rows.append({"hears": env.observe(state, agent)[0]["content"], "says": hour, "team_reward": step.team_reward})
    state = step.state
pd.DataFrame(rows)

# %% [markdown]
# ## A sixth function: imperfect play
#
# `demonstrate(state, agent, rng)` returns a reasonable answer of an agent. It is optional and has two uses: the check below plays with it, and a pocket model learns from it. It should often be right, but not always: a team that starts at 1.0 has nothing left to learn.


# %% tags=["env"]
@dataclass(frozen=True)
class Meeting(Rules):
    """Ann and Ben look for an hour at which both are free; each knows their own hours alone, and they speak in turn."""

    def demonstrate(self, state, agent, rng):
        free, last = state.free[agent], state.said[-1:]
        if rng.random() < 0.3:
            return str(rng.choice(HOURS))  # anything
        return str(last[0] if last and last[0] in free else rng.choice(free))


# %% [markdown]
# ## Check it
#
# Most bugs of an environment raise no error. Training continues with wrong numbers. `lab.check_env` plays real episodes, with sensible answers and with hostile ones (nothing, garbage, 20,000 characters, unicode). It tests each call against the laws that the cells rely on. It returns a table of the laws and how often each was checked.

# %%
env = Meeting()
lab.check_env(env).tail(8)

# %% [markdown]
# Now two versions with a bug in them.


# %%
class Forgetful(Meeting):
    """Notes each hour in the list of what is free, so that it is not said twice."""

    def step(self, state, actions):
        [(agent, text)] = actions.items()
        if text in map(str, state.free[agent]):
            state.free[agent].remove(int(text))
        return super().step(state, actions)


class Generous(Meeting):
    """Pays a bonus of 0.5 for any agreement."""

    def step(self, state, actions):
        step = super().step(state, actions)
        agreed = step.done and len(step.state.said) < 2 * self.max_turns
        return replace(step, team_reward=step.team_reward + 0.5 * agreed)


# %% [markdown]
# *Predict:* both train without an error. What is wrong in each, and which law finds it?

# %%
for broken in (Forgetful(), Generous()):
    try:
        lab.check_env(broken)
    except lab.EnvError as error:
        print(f"{type(broken).__name__}: {error}\n")

# %% [markdown]
# *Explain:* `Forgetful` changes the state that it was given. Trees and joint plans go back to that state with every candidate, and would find a different world. `Generous` pays more than `max_return`, so all shares of the best return are wrong. The check cannot know whether a reward is *sensible*. `Generous` with `max_return = 1.5` passes, and teaches a team to agree on anything. The check also misses what is never played. Random texts hardly ever agree, so without `demonstrate` it would not have found the bonus.
#
# **09.1** (15 minutes, medium) Here is another team. `left` and `right` each say a number at the same time, and the numbers must add up to `sum`. The reward is 1 minus the error as a share of the sum, but at least 0. An answer that is no number is invalid and earns the team 0. Success is an exact sum. `check_env` refuses this environment. Repair it.


# %%
class Split:
    agents, max_turns, max_return, max_tokens, pocket = ("left", "right"), 1, 1.0, 1, ""

    def tasks(self, n, split, seed):
        sums = [total for total in range(10, 100) if (total % 5 == 0) == (split == "test")]
        return [lab.Task(f"sum {total}", {"sum": total}) for total in random.Random(seed).sample(sums, n)]

    def start(self, task):
        return {"sum": task.data["sum"], "said": {}}

    def acting(self, state):
        return self.agents

    def observe(self, state, agent):
        return [{"role": "user", "content": f"{agent} sum {state['sum']}"}]

    def step(self, state, actions):
        valid = {agent: text.isascii() and text.isdecimal() for agent, text in actions.items()}
        ### BEGIN SOLUTION
        said = sum(map(int, actions.values())) if all(valid.values()) else 0
        reward = max(0.0, 1 - abs(said - state["sum"]) / state["sum"])
        success = said == state["sum"]
        after = {**state, "said": dict(actions)}
        ### STARTER
        # said = sum(map(int, actions.values())) if all(valid.values()) else float("nan")
        # reward = max(1 - abs(said - state["sum"]) / state["sum"], 0.0)
        # success = reward > 1
        # state["said"].update(actions)
        # after = state
        ### END SOLUTION
        return lab.Step(after, reward, {agent: float(ok) for agent, ok in valid.items()}, valid, success, True)

    def demonstrate(self, state, agent, rng):
        half = state["sum"] // 2
        return str(half if agent == "left" else state["sum"] - half + rng.choice((0, 0, 1)))


lab.course.check("09.1", Split())

# %% [markdown]
# ## A model in a minute
#
# A real language model can read any prompt. A laptop needs a *pocket model*: a tiny model that knows only the words of this task. `lab.make_pocket` plays the environment with `demonstrate`, and trains a fresh model on the answers.

# %% [markdown]
# *Predict:* seven of ten demonstrations agree where they can. An episode has up to six such answers. In how many of the tasks does it end well: in 30, 60 or 90 %?

# %%
folder = lab.make_pocket(env, "pocket_meeting", steps=20 if SMOKE else 400)

# %% [markdown]
# *Explain:* the printed line shows it: in somewhat more than half of the held-out tasks. The demonstrations themselves reach a little more, as you will see. One wrong word is no disaster, since others follow. (Is it too low? Take more `steps`. Is it too high? Make more mistakes.) The folder holds a model in Hugging Face format. It has 0.3 million weights, and its tokens are the words of this task.
#
# ## How good can a team be?
#
# Before you train, ask what a score of 1 would need. No team can reach it here. Nobody knows the other's hours, so the first word is a guess. Here are three ways to play, written by hand:


# %% tags=["env"]
def accept_or_draw(state, agent, rng):
    """Agree where it is possible, else say any free hour."""
    free, last = state.free[agent], state.said[-1:]
    return last[0] if last and last[0] in free else rng.choice(free)


def accept_or_new(state, agent, rng):
    """Agree where it is possible, else say a free hour that nobody has said yet."""
    new = [hour for hour in state.free[agent] if hour not in state.said]
    last = state.said[-1:]
    return last[0] if last and last[0] in state.free[agent] else rng.choice(new or state.free[agent])


def by_hand(env, play, tasks, rng):
    """Success and return of a way to play, the mean over the tasks."""
    ended = []
    for task in tasks:
        state, done = env.start(task), False
        while not done:
            [agent] = env.acting(state)
            step = env.step(state, {agent: str(play(state, agent, rng))})
            state, done = step.state, step.done
        ended.append({"success": step.success, "return": step.team_reward})
    return pd.DataFrame(ended).mean()


# %% [markdown]
# *Predict:* how much does it help to remember what was said?

# %%
plays = {"demonstrated": env.demonstrate, "accept or draw": accept_or_draw, "accept or new": accept_or_new}
many, rng = env.tasks(50 if SMOKE else 1000, "test", seed=0), random.Random(0)
pd.DataFrame({name: by_hand(env, play, many, rng) for name, play in plays.items()}).T.round(2)

# %% [markdown]
# *Explain:* agreeing whenever possible is worth most: it reaches about 0.9. Not repeating an hour adds a few points, up to about 0.94. The rest are tasks whose single common hour comes up too late. These two numbers are the scale for everything below. A curve that levels off at 0.8 has not "nearly solved" the task.
#
# ## Train it
#
# **What to expect.** 40 steps of 32 tasks with 8 episodes each take about half a minute. Success on held-out tasks starts at 0.57. Three recorded seeds reached 0.77, 0.77 and 0.77 after 10 steps, and 0.80, 0.88 and 0.73 after 40 (`data/results/own_team`).
#
# `run="meeting"` keeps everything in a folder. If you run this cell again, it continues where it stopped, bit for bit, or says why it cannot.

# %%
STEPS, HELD_OUT = (2, 8) if SMOKE else (40, 64)
team = lab.Team.shared(lab.load_policy(folder, lr=1e-3), env.agents)
held_out = env.tasks(HELD_OUT, "test", seed=0)


def success(team):
    return lab.evaluate(env, team, held_out, k=4)["success"].mean()


curve = LiveCurve("grpo")
steps = lab.train(
    env, team, "grpo", steps=STEPS, seed=0, tasks=4 if SMOKE else 32, run="meeting",
    score_every=2 if SMOKE else 10, score_tasks=HELD_OUT, score_episodes=4,
)  # fmt: skip
for report in steps:
    curve.take(report)
print(f"success on held-out tasks: {success(team):.2f}")

# %% [markdown]
# *Explain:* most of the gain comes in the first ten steps: the agents learn to say a free hour, and to agree where they can. Then the curve levels off. It is mostly below the first play that was written by hand, and always below the second. Why?

# %% [markdown]
# *Predict:* an agent may speak three times. How often is its second or third word an hour that it has said before? Answer for the untrained team and for the trained one.

# %%
run, untrained = lab.load_run("meeting"), lab.Team.shared(lab.load_policy(folder), env.agents)


def repeats(players):
    """The share of an agent's later words that it had said before in the episode."""
    turns = lab.rollout(env, players, held_out, lab.episodes(4), seed=5).sort_values("depth", kind="stable")
    again = turns.groupby(["episode", "agent"])["completion"].transform(lambda said: said.duplicated())
    return turns.assign(again=again)[turns["turn"] > 0].groupby("agent")["again"].mean()


entropy = run.stats.pivot_table(index="step", columns="agent", values="entropy")
pd.DataFrame(
    {
        "repeats, untrained": repeats(untrained),
        "repeats, trained": repeats(team),
        "entropy, first step": entropy.iloc[0],
        "entropy, last step": entropy.iloc[-1],
    }
).round(2)

# %% [markdown]
# *Explain:* the trained team repeats more often. `entropy` is the entropy of an agent's next token in nats. Nine equally likely hours would give ln 9 ≈ 2.2, and one certain hour gives 0. It falls: each agent develops favourite hours. They are reinforced whenever they happen to be the common hour, and the agent also repeats them when they are not. Not repeating would require the opposite; it helps only now and then, and late.
#
# ## Look at it
#
# Here is the held-out task that gained most. The tables show the worst of four episodes, before and after training.

# %%
before, after = (lab.evaluate(env, each, held_out, k=4).groupby("task")["success"].mean() for each in (untrained, team))
chosen = [task for task in held_out if task.id == (after - before).idxmax()]
for name, players in (("untrained", untrained), ("trained", team)):
    turns = lab.rollout(env, players, chosen, lab.episodes(4), seed=1)
    worst = turns.groupby("episode")["team_reward"].sum().idxmin()
    print(name)
    display(dialogue(turns, worst)[["agent", "hears", "says", "team_reward", "local_reward"]])

# %% [markdown]
# What did each agent earn in the last step, and what would two baselines make of it?

# %%
lab.RewardInspector(run)

# %% [markdown]
# Does Ben need a baseline of his own? Notebook 07 says when an agent does: it has separate weights, and is called rarely, on a condition that shifts its rewards. Both agents speak in every episode here. `lab.uphill` measures, before any training, whether the recipes' gradients point uphill:

# %%
apart = lab.Team.per_agent(lambda agent: lab.load_policy(folder), env.agents)
lab.uphill(apart, env, ["grpo", "own_robust"], rollouts=2 if SMOKE else 6).round(2)

# %% [markdown]
# `cos_own` is the cosine of a recipe's gradient with the direction in which the agent's own reward grows, `cos_team` the same for the team's return. `low` and `high` bound `cos_own`. For each agent both recipes have nearly the same cosine. So an own baseline hardly matters here, and `grpo` is enough.
#
# ## A prompt is text
#
# An agent's prompt is the text that `observe` returns. Here it is an option of the environment, so a run's record contains it. An instruction model gets the same information in sentences, and nothing else changes. (Pocket models know nine hours and a handful of words.)

# %%
SENTENCES = (
    "You are {agent}. You look for an hour at which your colleague is free, too. You are free at: {free}. Said so far, "
    "in turn: {said}. Repeat the last hour to agree to it, or propose another one. Answer with the number alone."
)
spoken = replace(env, prompt=SENTENCES)
print(spoken.observe(State({"ann": [2, 5], "ben": [5, 9]}, (2,)), "ben")[0]["content"])

# %% [markdown]
# ## A plan of your own
#
# A plan says how an episode is explored. It is a generator: it *yields* requests and receives their answers. `lab.Generate(at, agent, candidate)` requests a completion at a node, `lab.StepEnv(at, said)` steps the environment, `episode.record` writes rows, `episode.next` returns the next node, or `None` at the end. The requests of all live plans are batched.
#
# This plan measures how good an *opening* is: it samples `k` first words and plays each to the end.


# %% tags=["env"]
@dataclass(frozen=True)
class openings:
    k: int
    instances = 1  # of a task; the k branches stand in one

    def __call__(self, episode):
        at = episode.start()
        said = yield [lab.Generate(at, agent, i) for agent in episode.acting(at) for i in range(self.k)]
        steps = yield [lab.StepEnv(at, [one]) for one in said]
        after = []
        for i, (one, step) in enumerate(zip(said, steps, strict=True)):
            episode.record(at, [one], step)
            after.append(episode.next(at, [one], step, branch=i))
        yield [self.on(episode, node) for node in after]  # each branch goes its own way

    def on(self, episode, at):
        while at is not None:
            said = yield [lab.Generate(at, agent) for agent in episode.acting(at)]
            [step] = yield [lab.StepEnv(at, said)]
            episode.record(at, said, step)
            at = episode.next(at, said, step, branch=0)


# %%
turns = lab.rollout(env, team, env.tasks(1, "train", seed=1), openings(3), seed=0)
turns = turns.assign(credit=lab.return_to_go()(turns), at=turns["node"].str.partition("/")[2])
turns[["at", "agent", "prompt", "completion", "team_reward", "credit"]].round(2)

# %% [markdown]
# `at` is the end of the column `node`, the place of a row. For example, `1~2` is after one word, in branch 2. `credit` is the return from there on. The first three rows are Ann's three openings for one prompt. An empty completion, or an odd sign that the model knows from hostile play, is no hour. The next prompt then has a 0 in its place.
#
# **09.2** (10 minutes, medium) Write a plan that samples two candidates of each agent at every turn and keeps the shorter text. If both are equally long, it keeps the first one. It records only the kept one.


# %%
@dataclass(frozen=True)
class shorter_of_two:
    instances = 1

    def __call__(self, episode):
        at = episode.start()
        while at is not None:
            [agent] = episode.acting(at)  # one agent at a time, here
            ### BEGIN SOLUTION
            said = yield [lab.Generate(at, agent, i) for i in range(2)]
            kept = min(said, key=lambda one: len(one.text))
            ### STARTER
            # [kept] = yield [lab.Generate(at, agent)]
            ### END SOLUTION
            [step] = yield [lab.StepEnv(at, [kept])]
            episode.record(at, [kept], step)
            at = episode.next(at, [kept], step)


lab.course.check("09.2", shorter_of_two())

# %% [markdown]
# ## A credit of your own
#
# A credit takes the table and returns a number per row, on the same index. This credit pays the team's return, except to rows that name an hour at which their speaker is busy. Such a word did not help, however well the episode ended.


# %% tags=["env"]
@dataclass(frozen=True)
class truthful:
    """The episode's return to go, and 0 for a row whose own reward is 0."""

    def __call__(self, turns):
        return lab.return_to_go()(turns).where(turns["local_reward"] > 0, 0.0)


# %%
turns = turns.assign(credit=truthful()(turns))
turns[["at", "agent", "prompt", "completion", "local_reward", "credit"]].round(2)

# %% [markdown]
# **09.3** (5 minutes, easy) A long episode has more rows, and so more weight in the gradient. Write a credit that *shares* the return: every row of an episode gets an equal part, and the parts add up to the return. (`lab.episode_return()` gives each row its episode's return.)


# %%
@dataclass(frozen=True)
class shared_by_turns:
    def __call__(self, turns):
        ### BEGIN SOLUTION
        return lab.episode_return()(turns) / turns.groupby("episode")["episode"].transform("size")
        ### STARTER
        # return lab.episode_return()(turns)
        ### END SOLUTION


lab.course.check("09.3", shared_by_turns())

# %% [markdown]
# ## A loss of your own
#
# A loss is a frozen dataclass of `lab.Loss`. Its call gets computed and sampled values per token, with $N$ tokens in all; `row_N` is the row of each token. It returns a loss per token, and `update` averages them. This loss learns only from rows that are better than average:
#
# $$ \ell_t = -\max(A, 0)\, \log \pi(y_t). $$


# %% tags=["env"]
@dataclass(frozen=True)
class praise(lab.Loss):
    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None):
        return -advantages_N.clamp(min=0) * logprobs_N


# %% [markdown]
# **09.4** (15 minutes, hard) PPO's clip is a wall: a token moves freely up to it, and has no gradient behind it. A penalty is a spring: it pulls harder the further a token has moved. (Section 4 of the same paper has such a variant.) With $\rho_t = \pi(y_t)/\pi_{\text{old}}(y_t)$,
#
# $$ \ell_t = -\rho_t A + \tfrac12\, \beta\, (\log \rho_t)^2 , $$
#
# The second term estimates the KL divergence between new and old policy (Schulman 2020, *k2*). Write this loss, with `pull` for β. The check compares values *and* slopes on random tokens.


# %%
@dataclass(frozen=True)
class spring(lab.Loss):
    pull: float = 0.5

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None):
        ### BEGIN SOLUTION
        moved_N = logprobs_N - old_N
        return -moved_N.exp() * advantages_N + self.pull / 2 * moved_N**2
        ### STARTER
        # return -(logprobs_N - old_N).exp() * advantages_N
        ### END SOLUTION


lab.course.check("09.4", spring())

# %% [markdown]
# ## A recipe is a row
#
# A recipe combines plan, grouping, credit and loss. The eight openings of a task are in one episode. So `("episode", "agent", "turn")` compares Ann's first words with each other, Ben's first answers with each other, and so on.

# %% tags=["env"]
BY = ("episode", "agent", "turn")
mine = lab.Recipe("mine", plan=openings(8), by=BY, credit=truthful(), loss=praise(), aggregate="turn")

# %%
turns = lab.rollout(env, untrained, env.tasks(4, "train", seed=2), mine.plan, seed=0)
mine.advantages(turns)[["agent", "turn", "prompt", "completion", "credit", "group", "advantage"]].head(8).round(2)

# %% [markdown]
# A published recipe with one changed argument is a recipe too. This one adds an entropy bonus to GRPO's loss:

# %%
curious = lab.RECIPES["grpo"].replace(name="grpo, entropy 0.02", loss=lab.clipped(0.2, entropy=0.02))
curious.loss

# %% [markdown]
# *Predict:* draw three curves of held-out success over 40 steps: `grpo`, `grpo` with the bonus, and `mine`, which ignores every row below average.

# %%
learning_curves(pd.read_csv(RECORDS / "curves.csv"))

# %% [markdown]
# *Explain.* The curves are recorded, with three seeds each, equal steps, about equal tokens, and one learning rate, 1e-3. (`benchmarks/own_team.py` makes them again.) All rise alike for ten steps and then level off. `grpo` ended from 0.73 to 0.88. With an entropy bonus of 0.02 the seeds ended at 0.87, 0.86 and 0.78: higher for two seeds, lower for one. `mine` ended at 0.81, 0.80 and 0.79. Ten lines of your own and no gain is the usual outcome, and worth writing down. Three seeds at one rate explore, and settle nothing. To learn whether your part helps, use `lab.study` with a learning rate for each arm and five seeds, as in notebook 12.

# %% [markdown]
# ## A team with unlike settings
#
# Roles need not be alike. Here Ann and Ben have separate weights. Ann learns fast. Ben learns slowly, and samples at a lower temperature. (With `frozen="ben"` he would not learn at all.) The cell makes ten steps with your recipe and shows the report of the last one. `turns` counts the rows that an agent learned from. `grad_norm` is the norm of its part of the gradient before clipping.

# %%
players = lab.Team(
    {"ann": lab.load_policy(folder, lr=1e-3), "ben": lab.load_policy(folder, lr=3e-4)},
    sampling={"ben": lab.Sampling(temperature=0.7)},
)
before = success(players)
*_, report = lab.train(env, players, mine, steps=2 if SMOKE else 10, seed=0, tasks=4 if SMOKE else 32)
print(f"success {before:.2f} before, {success(players):.2f} after")
report.stats[["policy", "agent", "turns", "tokens", "entropy", "grad_norm"]].round(2)

# %% [markdown]
# ## The same game as a program
#
# Perhaps your team is not an environment but a program: functions that call a model, a graph, or a script around a client. `programs.play` runs such a program unchanged. The program gets a task and an endpoint at which the agents answer, and returns the reward. Every call becomes a row of the table. Here is the meeting again, as a loop. `endpoint(agent, text)` asks an agent without a client. Any client of OpenAI's chat completions can ask the same agents, through `endpoint.base_url` and `endpoint.api_key`. `docs/programs.md` shows LangGraph, AutoGen and the OpenAI SDK.


# %%
def meet(task, endpoint):
    said = []
    for number in range(2 * env.max_turns):
        agent = env.agents[number % 2]
        free, heard = " ".join(map(str, task.data[agent])), " ".join(map(str, said)) or "nothing"
        text = endpoint(agent, f"free {free} said {heard} {agent}")
        said.append(int(text) if text in map(str, HOURS) else 0)
        if said[-1] and said[-2:-1] == said[-1:]:
            good = all(said[-1] in free for free in task.data.values())
            return programs.EpisodeResult((1.0 - 0.1 * (len(said) - 2)) * good, success=good)
    return 0.0


turns = programs.play(meet, untrained, held_out[:4], n=8, seed=0, max_tokens=env.max_tokens)
turns[["episode", "agent", "turn", "prompt", "completion", "team_reward", "success"]].head(6)

# %% [markdown]
# *Predict:* `programs.ProgramEnv` makes an environment of it, to train on. Which plans can train it: whole episodes, a tree, the `openings` from above? After ten steps of `grpo`, will the team have learned less than on the environment?

# %%
program = programs.ProgramEnv(meet, env.agents, train=env.tasks(3000, "train", seed=0), max_tokens=env.max_tokens)
players = lab.Team.shared(lab.load_policy(folder, lr=1e-3), env.agents)
before = success(players)
for _ in lab.train(program, players, "grpo", steps=2 if SMOKE else 10, seed=0, tasks=4 if SMOKE else 32):
    pass
print(f"success {before:.2f} before, {success(players):.2f} after")
for plan in (lab.tree(4), openings(4)):
    try:
        lab.rollout(program, players, held_out[:2], plan)
    except lab.RolloutError as error:
        print(error)

# %% [markdown]
# *Explain:* the rows are the same, with sampled tokens and their log-probabilities. So the team can learn the same from them; if ten steps of the two end apart, their random draws differed. A program lacks a state to go back to. A tree, or eight openings of one task, would have to try something else in the middle of it. The five functions make that possible. They also make a resumed run equal bit for bit. For a program this holds only if it does not depend on time, chance or the network.

# %% [markdown]
# ## Keep it, hand it in
#
# The run's folder has the recipe, every table and the weights. `lab.load_run` opens it, here or elsewhere, without running any of your code. `.team()` is the team after the last step. `lab.export` makes one zip of it, which the instruments can open.

# %%
print(run)
again = run.team()
print(f"success of the team that was kept: {success(again):.2f}")
zipped = lab.export(run, "meeting.zip")
print(f"{zipped.name}: {zipped.stat().st_size / 1e3:.0f} kB")

# %% [markdown]
# ## Your turn
#
# **09.5** (60 minutes, hard) Build a team of your own. It has two roles or more, and each role knows or can do something that the others cannot. It has one reward, and a `demonstrate` that succeeds in 10 to 90 % of its episodes. Some ideas fit in forty lines. Take a guesser and a hinter, or two agents that must pick different doors. Or let one agent see the map while the other walks. `lab.course.check` runs `check_env` and plays your demonstrations. Then make a pocket model for it and train it: that is the real exercise.


# %%
### BEGIN SOLUTION
class HigherLower:
    """The hinter sees a number from 1 to 9 and says `higher` or `lower`; the guesser has three guesses."""

    agents, max_turns, max_return, max_tokens, pocket = ("guesser", "hinter"), 3, 1.0, 2, ""
    splits_meet = True  # nine numbers are all that there are

    def tasks(self, n, split, seed):
        numbers = random.Random(seed).sample(range(1, 10), n)
        return [lab.Task(f"number {number}", {"number": number}) for number in numbers]

    def start(self, task):
        return (task.data["number"],)

    def acting(self, state):
        return (self.agents[(len(state) - 1) % 2],)

    def observe(self, state, agent):
        told = state if agent == "hinter" else state[1:]
        return [{"role": "user", "content": " ".join(map(str, (*told, agent)))}]

    def step(self, state, actions):
        [(agent, text)] = actions.items()
        right = agent == "guesser" and text == str(state[0])
        clear = text in (map(str, HOURS) if agent == "guesser" else ("higher", "lower"))
        return lab.Step(
            (*state, text), float(right), {agent: float(right)}, {agent: clear}, right, right or len(state) == 6
        )

    def demonstrate(self, state, agent, rng):
        if agent == "hinter":
            return rng.choice(("higher", "lower"))
        return str(rng.choice((state[0], *HOURS)))


yours = HigherLower()
### STARTER
# yours = ...
### END SOLUTION
lab.course.check("09.5", yours)

# %% [markdown]
# **To remember.** An environment is five pure functions, and `check_env` is quicker than a week of wrong curves. Know what the best possible play earns before you call a curve good. A new idea is a plan, a credit, a loss or a few settings, in about ten lines.
#
# *Papers:* PPO, arXiv 1707.06347 (equation 7, and section 4 on penalties). `docs/extending.md` has an example of each part.
#
# Next: `10_one_gpu_unsloth`, the same loop with a real model on one GPU.
