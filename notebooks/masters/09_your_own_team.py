# %% [markdown]
# # Your own team
#
# *Level: you have done 00 to 04; 06 to 08 help. Reading: 40 minutes. Compute: about 2 minutes on two CPU cores.*
#
# A task that nobody has written before: its rules, its roles and prompts, its rewards; a model made for it in a minute; a team trained on it; and then a plan, a credit and a loss that are not in the kit either. Everything stays in this notebook, and nothing is registered anywhere.
#
# At the end you will be able to write an environment of your own and have it checked, make it a pocket model, train a team on it, sit in for one of its agents, and change any of the four cells in about ten lines.

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
from mas_lab.paths import data_dir
from mas_lab.widgets.figures import dialogue, learning_curves
from mas_lab.widgets.live import LiveCurve

RECORDS = data_dir() / "results" / "own_team"

pd.set_option("display.max_colwidth", None)

# %% [markdown]
# ## The task: find an hour
#
# Ann and Ben look for an hour, 1 to 9, at which both are free. Each knows their own four free hours and hears what was said. They speak in turn, one hour at a time, at most three times each. Who repeats the hour that was just said agrees to it. If both are free then, the meeting stands, and the team earns
#
# $$ r = 1 - 0.1\,(m - 2), $$
#
# $m$ the number of hours that were said until then, so that an agreement at once ($m = 2$) pays 1 and one with the last word ($m = 6$) 0.6. Everything else earns 0. That is one number for both, at the end. Besides, each agent has a reward of its own for each hour it says: 1 if it is free then.
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
# An environment (`lab.Env`) is an object with some constants and five functions. *Pure* means: they get a state and give a new one, they draw no random numbers, and they remember nothing. So a plan may go back to any state and try something else, and steps may run in threads.
#
# | | says |
# |---|---|
# | `tasks(n, split, seed)` | n different problems; `train` and `test` share none |
# | `start(task)` | the first state |
# | `acting(state)` | who speaks now: one agent, or several at once and unseen |
# | `observe(state, agent)` | what that agent is told, as chat messages |
# | `step(state, actions)` | what the answers do and earn |

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
# An environment needs no model. Play the dialogue from above with it:

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
# `demonstrate(state, agent, rng)` says what an agent could well answer. It is optional, and has two uses: the check below plays with it, and a pocket model learns from it. It should be right often, and not always: who starts at 1.0 has nothing left to learn from reward.


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
# ## Have it checked
#
# Most bugs of an environment raise no error: training goes on, on wrong numbers. `lab.check_env` plays real episodes, with sensible answers and with hostile ones (nothing, garbage, 20,000 characters, unicode), and holds each call to the laws that the cells rely on. It returns what was checked, and how often.

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
# *Predict:* both train without an error. What goes wrong in each, and which law would notice?

# %%
for broken in (Forgetful(), Generous()):
    try:
        lab.check_env(broken)
    except lab.EnvError as error:
        print(f"{type(broken).__name__}: {error}\n")

# %% [markdown]
# *Explain:* `Forgetful` changes the state that it was given. Whoever goes back to that state, as trees and joint plans do with every candidate, meets another world than before. `Generous` pays more than `max_return` says, so that shares of the best return, and whatever is decided by them, are wrong. What the check cannot say is whether a reward is *sensible*: `Generous` with `max_return = 1.5` passes, and teaches a team to agree on anything. Nor does it see what nobody plays: of random texts alone hardly one agrees, and without `demonstrate` the bonus would have gone unnoticed.
#
# **09.1** Here is another team: `left` and `right` each say a number at the same time, and together they must make `sum`. The reward is 1 less the error as a share of the sum, at least 0; an answer that is no number is invalid and earns the team 0; success is an exact sum. `check_env` refuses it. Repair it.


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
# A real language model reads prompts as they are. A laptop needs a *pocket model*, a tiny one that knows this task's words and no others. `lab.make_pocket` plays the environment by `demonstrate` and has a fresh model learn the answers.

# %% [markdown]
# *Predict:* demonstrations agree where they can, in seven answers of ten. How often does an episode of up to six such answers end well: in 30, 60 or 90 % of the tasks?

# %%
folder = lab.make_pocket(env, "pocket_meeting", steps=20 if SMOKE else 400)

# %% [markdown]
# *Explain:* the line says it: of held-out tasks somewhat more than half, a little less than the demonstrations themselves, as you will see. One wrong word is no disaster, since there are others after it. (Too low? More `steps`. Too high? Make more mistakes.) The folder holds a model in the usual Hugging Face form, of 0.3 million weights, whose tokens are the words of this task.
#
# ## How good can a team be?
#
# Before you train, ask what a score of 1 would take. No team can reach it here: nobody knows the other's hours, so the first word is a guess. Three ways to play, written by hand:


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
# *Predict:* how much is it worth to remember what was said?

# %%
plays = {"demonstrated": env.demonstrate, "accept or draw": accept_or_draw, "accept or new": accept_or_new}
many, rng = env.tasks(50 if SMOKE else 1000, "test", seed=0), random.Random(0)
pd.DataFrame({name: by_hand(env, play, many, rng) for name, play in plays.items()}).T.round(2)

# %% [markdown]
# *Explain:* agreeing where one can is worth most: about 0.9. Not saying the same hour twice adds a few points more, to about 0.94, and what is missing there are tasks with a single common hour that came up too late. These two lines are the scale for everything below: a curve that levels off at 0.8 has not "nearly solved" the task.
#
# ## Train it
#
# **What to expect.** 40 steps of 32 tasks, 8 episodes each: about half a minute. Success on held-out tasks starts at 0.57. Three recorded seeds stood at 0.77, 0.77 and 0.77 after 10 steps and at 0.80, 0.88 and 0.73 after 40 (`data/results/own_team`).
#
# `run="meeting"` keeps everything in a folder: run this cell again, and it goes on where it stopped, bit for bit, or says why it cannot.

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
# *Explain:* most of the gain comes in the first ten steps: say an hour of your own, and agree where you can. Then the curve levels off, mostly below the first play that was written by hand and always below the second. Why?

# %% [markdown]
# *Predict:* an agent may speak three times. How often is its second or third word an hour that it has said before: of the untrained team, and of the trained one?

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
# *Explain:* more often than before. `entropy` is that of an agent's next token in nats (ln 9 ≈ 2.2 would be any of nine hours, 0 is one hour for sure), and it falls: each agent comes to have favourites, which are praised whenever they happen to be the common hour, and when they are not, it says them again. "Not the same one twice" would ask for the opposite, helps now and then, and pays late.
#
# ## Look at it
#
# The held-out task that gained most: the worst of four episodes, before and after.

# %%
before, after = (lab.evaluate(env, each, held_out, k=4).groupby("task")["success"].mean() for each in (untrained, team))
chosen = [task for task in held_out if task.id == (after - before).idxmax()]
for name, players in (("untrained", untrained), ("trained", team)):
    turns = lab.rollout(env, players, chosen, lab.episodes(4), seed=1)
    worst = turns.groupby("episode")["team_reward"].sum().idxmin()
    print(name)
    display(dialogue(turns, worst)[["agent", "hears", "says", "team_reward", "local_reward"]])

# %% [markdown]
# Who earned what in the last step that the run kept, and what two baselines would make of it:

# %%
lab.RewardInspector(run)

# %% [markdown]
# Does Ben need a baseline of his own? Notebook 07 says when: weights of his own, called rarely, on a condition that shifts his rewards. `lab.advise` tells it from a first rollout:

# %%
apart = lab.Team.per_agent(lambda agent: lab.load_policy(folder), env.agents)
turns = lab.rollout(env, apart, env.tasks(16, "train", seed=0), lab.episodes(8), seed=0)
advice = lab.advise(lab.group(turns, by="task", credit=lab.episode_return()))
advice[["agent", "own", "spoke", "offset", "gain"]].round(2)

# %% [markdown]
# `own` is the verdict; `spoke` the share of episodes in which the agent did; `offset` what the global mean adds to its advantages, squared, in its own variances; `gain` what its own mean would make of its gradient's squared signal-to-noise ratio. Both agents speak in every episode: it hardly matters here, and `grpo` will do.
#
# ## A prompt is text
#
# What an agent is told is whatever `observe` says. Here it is an option of the environment, so that a run's record says which prompt it was. An instruction model is told the same in sentences, and nothing else changes (pocket models know nine hours and a handful of words):

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
# This one asks how good an *opening* is: `k` first words, each played to its end.


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
# `at` is the end of the column `node`, where a row was said (`1~2`: after one word, in branch 2); `credit` is the return from there on. The first three rows are Ann's three openings for one prompt. A completion that is empty, or an odd sign that the model knows from hostile play, is no hour: the next prompt has a 0 in its place.
#
# **09.2** Write a plan in which each agent is asked twice at every turn (two candidates of one prompt), and the shorter text is kept, the first one if both are equally long. Only what was kept is recorded.


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
# A credit takes the table and gives a number per row, on the same index. This one pays the team's return, but not to a row that named an hour at which its speaker was busy: however well the episode ended, that word was no part of it.


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
# **09.3** A return counts an episode once, a long one has more rows, and so more to say in the gradient. Write a credit that *shares* the return: every row of an episode gets an equal part of it, so that the parts add up to the return. (`lab.episode_return()` gives each row its episode's return.)


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
# A loss is a frozen dataclass of `lab.Loss`. Its call gets what was computed and what was sampled, per token ($N$ tokens in all; `row_N` says whose row a token belongs to), and returns a loss per token; averaging is `update`'s matter. This one learns from what went better than average alone:
#
# $$ \ell_t = -\max(A, 0)\, \log \pi(y_t). $$


# %% tags=["env"]
@dataclass(frozen=True)
class praise(lab.Loss):
    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None):
        return -advantages_N.clamp(min=0) * logprobs_N


# %% [markdown]
# **09.4** PPO's clip is a wall: up to it a token moves freely, behind it the gradient is gone. A penalty is a spring, the stronger the further a token has moved (section 4 of the same paper has such a variant). With $\rho_t = \pi(y_t)/\pi_{\text{old}}(y_t)$,
#
# $$ \ell_t = -\rho_t A + \tfrac12\, \beta\, (\log \rho_t)^2 , $$
#
# whose second term is an estimate of the KL divergence between new and old policy (Schulman 2020, *k2*). Write it, with `pull` for β. The check compares values *and* slopes on random tokens.


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
# Plan, comparison, credit and loss, put together. The eight openings of a task stand in one instance, so `("episode", "agent", "turn")` compares Ann's first words with each other, Ben's first answers with each other, and so on.

# %% tags=["env"]
BY = ("episode", "agent", "turn")
mine = lab.Recipe("mine", plan=openings(8), by=BY, credit=truthful(), loss=praise(), aggregate="turn")

# %%
turns = lab.rollout(env, untrained, env.tasks(4, "train", seed=2), mine.plan, seed=0)
mine.advantages(turns)[["agent", "turn", "prompt", "completion", "credit", "group", "advantage"]].head(8).round(2)

# %% [markdown]
# A published row with one changed argument is a recipe, too. This one adds an entropy bonus to GRPO's loss:

# %%
curious = lab.RECIPES["grpo"].replace(name="grpo, entropy 0.02", loss=lab.clipped(0.2, entropy=0.02))
curious.loss

# %% [markdown]
# *Predict:* draw three curves of held-out success over 40 steps: `grpo`, `grpo` with the bonus, and `mine`, which throws away every row below average.

# %%
learning_curves(pd.read_csv(RECORDS / "curves.csv"))

# %% [markdown]
# *Explain* (recorded: three seeds each, the same steps and about as many tokens, one learning rate for all, 1e-3; `benchmarks/own_team.py` makes them anew). All rise alike for ten steps and then level off. `grpo` ended anywhere from 0.73 to 0.88. With an entropy bonus of 0.02 they ended at 0.87, 0.86 and 0.78: higher for two seeds, lower for one. `mine` at 0.81, 0.80 and 0.79: ten lines of one's own and no gain, the usual outcome, and worth writing down. Three seeds at one rate explore, and settle nothing: whether a part of yours is worth something is a question for `lab.study`, with a learning rate for each arm and five seeds, and for notebook 12.

# %% [markdown]
# ## A team with unlike settings
#
# Roles need not be alike. Here Ann and Ben have weights of their own. Ann learns fast; Ben learns slowly, and draws his words at a lower temperature, likelier ones. (With `frozen="ben"` he would not learn at all.) Ten steps of your own recipe with them, and what the last one reports: `turns` are the rows that an agent learned from, `grad_norm` is the length of its part of the gradient before clipping.

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
# Perhaps you have a team already that is no environment: functions that call a model, a graph, a script around a client. `lab.play` runs such a program as it is. It gets a task and an endpoint at which the agents answer, and returns the reward; every call becomes a row of the table. Here is the meeting once more, as a loop. `endpoint(agent, text)` asks without a client; with `endpoint.base_url` and `endpoint.api_key` any client of OpenAI's chat completions asks the same agents (`docs/programs.md` has LangGraph, AutoGen and the OpenAI SDK).


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
            return lab.EpisodeResult((1.0 - 0.1 * (len(said) - 2)) * good, success=good)
    return 0.0


turns = lab.play(meet, untrained, held_out[:4], n=8, seed=0, max_tokens=env.max_tokens)
turns[["episode", "agent", "turn", "prompt", "completion", "team_reward", "success"]].head(6)

# %% [markdown]
# *Predict:* `lab.ProgramEnv` makes it an environment to train on. Which plans can it be trained with: whole episodes, a tree, the `openings` from above? And after ten steps of `grpo`, will it have learned less than the environment had?

# %%
program = lab.ProgramEnv(meet, env.agents, train=env.tasks(3000, "train", seed=0), max_tokens=env.max_tokens)
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
# *Explain:* the rows are the same, with the tokens that were sampled and their log-probabilities, and so is what can be learned from them; where ten steps of the two end apart, their draws did. What a program lacks is a state to go back to: a tree, or eight openings of one task, would have to try something else in the middle of it. That is what the five functions are for. They also promise that a run goes on bit for bit; of a program this holds as long as it does nothing by time, chance or the network.

# %% [markdown]
# ## Sit in for Ben
#
# You read what he is told, answer, and see what it earned; Ann is played by the team. In JupyterLab, VS Code, Colab or on Kaggle there is a box to type into, and "Ask the policy" says what Ben would have said.

# %%
seat = lab.play_as(env, team, "ben")
seat

# %% [markdown]
# Where no widget lives, `seat.say("5")` answers, and `seat.turns` is the table of what was played, as after any rollout:

# %%
seat.say(str(seat.turns["completion"].iloc[0]))  # Ben repeats what Ann has said
seat.turns[["agent", "prompt", "completion", "team_reward", "local_reward", "policy"]]

# %% [markdown]
# ## Keep it, hand it in
#
# The run's folder has the recipe, every table and the weights. `lab.load_run` opens it, here or elsewhere, without running any code of yours; `.team()` is the team after its last step. `lab.export` makes one zip of it, which the instruments open as they are.

# %%
print(run)
again = run.team()
print(f"success of the team that was kept: {success(again):.2f}")
zipped = lab.export(run, "meeting.zip")
print(f"{zipped.name}: {zipped.stat().st_size / 1e3:.0f} kB")

# %% [markdown]
# ## Your turn
#
# **09.5** A team of your own: two roles or more, each with something the other does not know or cannot do, one reward, and a `demonstrate` that succeeds in 10 to 90 % of its episodes. Some that fit in forty lines: a guesser and a hinter; two who must pick different doors; one who sees the map and one who walks; a buyer and a seller with prices of their own. `lab.course.check` runs `check_env` and plays your demonstrations. Then make it a pocket model and train it: that is the real exercise.


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
# **To remember.** An environment is five pure functions, and `check_env` is quicker than a week of wrong curves. Know what the best possible play earns before you call a curve good. A new idea is a plan, a credit, a loss or a row of settings, and ten lines.
#
# *Papers:* PPO, arXiv 1707.06347 (equation 7, and section 4 on penalties). `docs/extending.md` has an example of each part.
#
# Next: `10_one_gpu_unsloth`: the same loop with a real model on one GPU.

# %% [markdown]
# ## Agents that call tools
#
# Most agents do not only talk: they call functions. The task `calculator` has two agents with a tool. The opener works out the first operation of a chain such as `43 + 19 - 30`, and the closer the second. Each writes a *tool call*, reads the result, and says a number. The numbers are too large to add in the head of 0.3 million weights, so the call has to be right: its JSON, its marks, the name of the tool and its arguments.
#
# `program` is written as anybody would write it: it calls the endpoint with `tools`, runs the function, and sends the result back.

# %%
import inspect

from mas_lab.tasks import calculator

print(inspect.getsource(calculator.program))

# %%
tools_env = lab.make_env("calculator")
callers = lab.Team.shared(lab.load_policy("calculator", lr=5e-4), tools_env.agents)
turns = lab.play(calculator.program, callers, tools_env.tasks(2, "train", seed=0), n=4, seed=0, max_tokens=32)
turns[["episode", "agent", "turn", "completion", "call_status", "valid", "team_reward"]].head(8)

# %% [markdown]
# `call_status` says what became of a call. A malformed one is data: it comes back to the program as plain text, and its row has `valid=False`. Nothing repairs it, since these rows are what the policy has to learn from.

# %% [markdown]
# *Predict:* about one call in five is malformed at the start. Nothing in the reward mentions the form of a call. Will training on the team's reward alone make the calls well-formed?

# %%
calls, program_env = [], lab.ProgramEnv(
    calculator.program, tools_env.agents, max_tokens=32, train=tools_env.tasks(256, "train", seed=0),
)  # fmt: skip
for report in lab.train(program_env, callers, "dr_mas", steps=2 if SMOKE else 20, seed=0, tasks=4 if SMOKE else 16):
    called = report.turns[report.turns["call_status"] != "none"]
    calls.append({"step": report.step, "malformed": (called["call_status"] != "ok").mean(),
                  "team reward": report.turns.groupby("episode")["team_reward"].sum().mean()})  # fmt: skip
pd.DataFrame(calls).set_index("step").iloc[[0, 1, -2, -1]].round(2)

# %% [markdown]
# *Explain:* yes. A malformed call ends in a wrong number, so it earns less than the other episodes of its task, and its advantage is negative. In three recorded runs of 60 steps (`data/results/calculator`, the same task as an environment) the share of malformed calls fell from 0.17, 0.19 and 0.24 in the first step to 0.01, 0.02 and 0.01 in the last ten, and success on held-out tasks rose from 0.32, 0.33 and 0.35 to 0.94, 0.95 and 0.90, in about a minute on one core.
#
# `lab.RewardInspector` has the share of malformed calls per agent, and `lab.RolloutViewer` marks their rows. `docs/programs.md` runs the same two agents in LangGraph, openai-agents, smolagents, pydantic-ai and AutoGen, unchanged.
