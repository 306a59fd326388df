# %% [markdown]
# # Tools: a team that calls functions
#
# *Level: notebooks 00 to 04. Reading: 15 minutes. Compute: about half a minute on two CPU cores.*
#
# Most agents do not only talk; they call functions. The model writes a *tool call*, your code runs the function, and the model reads the result. Reinforcement learning of such a team is the same four cells, with three questions of its own: what is a row, which tokens are trained, and what happens to a call that cannot be read?
#
# Afterwards you can
#
# - read a tool call and name what is wrong with it;
# - run a call yourself, and say which tokens of an episode are trained;
# - train a team that calls a tool, and say what a penalty for malformed calls changes.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import inspect

import pandas as pd
from plotly import express as px

import mas_lab as lab
from mas_lab.contrib import programs
from mas_lab.paths import data_dir
from mas_lab.tasks import calculator
from mas_lab.tool_calls import read_answer
from mas_lab.widgets.figures import LAYOUT, PALETTE

pd.set_option("display.max_colwidth", 100)

# %% [markdown]
# ## By hand: five answers
#
# The task `calculator` has two agents with one tool, `calculate(a, op, b)`. The opener computes the first operation of a chain such as `43 + 19 - 30`, and the closer the second. The numbers are too large for a model of 0.3 million weights to add. So the call has to be right: its marks, its JSON, the name of the tool, and its arguments.
#
# A call is JSON between two marks. `call_status` is one of `ok`, `none` (no call), `invalid_json`, `unclosed`, `unknown_tool` and `wrong_arguments`. Here are five answers to `43 + 19`:

# %%
answers = [
    '<tool_call>\n{"name": "calculate", "arguments": {"a": 43, "op": "+", "b": 19}}\n</tool_call>',
    '<tool_call>\n{"name": "compute", "arguments": {"a": 43, "op": "+", "b": 19}}\n</tool_call>',
    '<tool_call>\n{"name": "calculate", "arguments": {"a": 43, "op": "+", "c": 19}}\n</tool_call>',
    '<tool_call>\n{"name": "calculate", "arguments": {"a": 43, "op": "+", "b": 91}}\n</tool_call>',
    '<tool_call>\n{"name": "calculate", "arguments": {"a": 43, "op": "+", "b": 19}\n</tool_call>',
]
print(*answers, sep="\n\n")

# %% [markdown]
# *Predict:* which status has each of the five?

# %%
env = lab.make_env("calculator")
tools = env.tools("opener")
pd.DataFrame({"answer": answers, "call_status": [read_answer(answer, tools)[1] for answer in answers]})

# %% [markdown]
# *Explain:* the second names a tool that was not offered. The third has no argument `b`. The fourth is `ok`: the form is right and the number is wrong, which only the reward can say. The fifth lacks a brace. Nothing repairs a malformed call. It goes back as plain text, and its row has `valid=False`, since the policy has to learn from these rows.
#
# **16.1** (5 minutes, easy) Run a call. The result is a message with three keys: `role` is "tool", `tool_call_id` is the call's `id`, and `content` is the number as text. The operations are "+" and "-".

# %%
call = {"id": "call_0_0", "function": {"name": "calculate", "arguments": {"a": 43, "op": "+", "b": 19}}}


def run(call):
    """The message with the result of one call of `calculate`."""
    ### BEGIN SOLUTION
    given = call["function"]["arguments"]
    result = given["a"] + given["b"] if given["op"] == "+" else given["a"] - given["b"]
    return {"role": "tool", "tool_call_id": call["id"], "content": str(result)}
    ### END SOLUTION


lab.course.check("16.1", run)

# %% [markdown]
# ## One call of the model is one row
#
# An agent that uses its tool speaks twice: it calls, and then it answers. Here is one episode of the untrained team.

# %%
team = lab.Team.shared(lab.load_policy(env.pocket, lr=5e-4), env.agents)
turns = lab.rollout(env, team, env.tasks(8, "train", seed=0), lab.episodes(4), seed=0)
turns[["agent", "turn", "completion", "call_status", "valid", "team_reward", "local_reward"]].head(4)

# %% [markdown]
# The result of the tool is in the *prompt* of the next row:

# %%
print(turns["prompt"].iloc[1])

# %% [markdown]
# *Predict:* `update` trains on the tokens of `completion_ids`. In the second row the opener reads the question, its own call and the result, and answers. How many of the tokens that this row reads and writes are trained? Few, half, or nearly all?

# %%
first = turns.head(4)
pd.DataFrame(
    {
        "agent": first["agent"],
        "says": first["completion"],
        "tokens read": first["prompt_ids"].map(len),
        "tokens written": first["completion_ids"].map(len),
    }
)

# %% [markdown]
# *Explain:* three of the 75: two digits and the end of the answer. The call is trained in its own row, where it was sampled. The result of the tool is never trained, because no policy drew it. In a trainer that keeps the whole chat as one text, a mask has to leave it out. Without the mask the model learns to invent results.
#
# **16.2** (4 minutes, easy) Count for the rows of a table how many tokens were written by agents, and how many were only read.


# %%
def tokens(rows):
    """(tokens that are trained, tokens that are only read), over all rows."""
    ### BEGIN SOLUTION
    return rows["completion_ids"].map(len).sum(), rows["prompt_ids"].map(len).sum()
    ### END SOLUTION


lab.course.check("16.2", tokens)

# %% [markdown]
# **16.3** (6 minutes, medium) A rollout has calls and answers. Compute for each agent which share of its *calls* is malformed. Rows without a call (`call_status` "none") do not count. Return a Series by agent.


# %%
def malformed(turns):
    """The share of malformed calls of each agent, among the rows in which it called."""
    ### BEGIN SOLUTION
    called = turns[turns["call_status"] != "none"]
    return (called["call_status"] != "ok").groupby(called["agent"]).mean()
    ### END SOLUTION


lab.course.check("16.3", malformed)

# %% [markdown]
# ## Training: the reward does not mention the form
#
# The team earns 1 if the last number is right, and nothing else counts.

# %% [markdown]
# *Predict:* about one call in five is malformed at the start. The reward says nothing about the form of a call. Will eight steps make the calls well-formed?

# %%
STEPS = 2 if SMOKE else 8


def learn(invalid):
    """Calls and success at each step of one training, with a penalty for rows that are not valid."""
    team, rows = lab.Team.shared(lab.load_policy(env.pocket, lr=5e-4), env.agents), []
    recipe = lab.RECIPES["dr_mas"].replace(credit=lab.episode_return(invalid=invalid))
    for report in lab.train(env, team, recipe, steps=STEPS, seed=0, tasks=4 if SMOKE else 16):
        called = report.turns[report.turns["call_status"] != "none"]
        episodes = report.turns.groupby("episode")
        rows.append({"step": report.step, "malformed calls": (called["call_status"] != "ok").mean(),
                     "success": episodes["success"].last().mean(), "calls": len(called) / episodes.ngroups})  # fmt: skip
    return pd.DataFrame(rows).set_index("step")


def lines(table, title):
    figure = px.line(table, color_discrete_sequence=PALETTE)
    return figure.update_layout(**LAYOUT, height=340, yaxis_range=[0, 1], yaxis_title=title, legend_title="")


learned = learn(invalid=0.0)
lines(learned[["malformed calls", "success"]], "share")

# %% [markdown]
# *Explain:* yes. A malformed call ends the episode or leads to a wrong number. So it earns less than the other episodes of its task, and its advantage is negative. `data/results/calculator` has three recorded runs of 60 steps. The share of malformed calls was 0.17, 0.19 and 0.24 in the first step. In the last ten steps it was 0.01, 0.02 and 0.01. Success on held-out tasks rose from 0.32, 0.33 and 0.35 to 0.94, 0.95 and 0.90. This took about a minute on one core.
#
# ## One argument: a penalty for malformed calls
#
# Many trainers punish bad form. Here it is one argument: `lab.episode_return(invalid=5.0)` subtracts 5 from the credit of each row that is not valid. There is a risk: an agent that never calls writes no malformed call.

# %% [markdown]
# *Predict:* with a penalty of 5, are there fewer malformed calls at the end than without one? Do the agents still call?

# %%
punished = learn(invalid=5.0)
lines(
    pd.DataFrame({"no penalty": learned["malformed calls"], "penalty 5": punished["malformed calls"]}),
    "malformed calls",
)

# %%
recorded = pd.read_csv(data_dir() / "results" / "tool_calls" / "curves.csv")
end = recorded.query("step >= 8").groupby(["invalid", "seed"])[["malformed", "calls"]].mean()
end["held-out success"] = recorded.groupby(["invalid", "seed"])["held_out"].first()
end.unstack("seed").round(2)

# %% [markdown]
# *Explain:* we could not detect a difference. The table has recorded trainings of twelve steps: the means of steps 8 to 11, over five seeds and three penalties. Without a penalty the share of malformed calls is 0.03 to 0.05, with a penalty of 5 it is 0.03 to 0.08. Success on held-out chains is 0.79 to 0.90 and 0.82 to 0.91. The agents do not stop calling: there are 1.96 calls in an episode, of at most 2, with either. The reason: a malformed call already has the lowest return of its group. A penalty makes the deviation of such a group larger, and `normalize` divides by it. So right and wrong answers of this group then differ *less*. A penalty is for tasks in which a bad call costs nothing else; we did not try one.

# %% [markdown]
# ## Your own code
#
# A team of yours is probably a program, not an environment. `calculator.program` is ordinary code: it calls an endpoint with `tools`, runs the function, and sends the result back.

# %%
print(inspect.getsource(calculator.program))

# %%
played = programs.play(calculator.program, team, env.tasks(2, "train", seed=0), n=4, seed=0, max_tokens=32)
played[["episode", "agent", "turn", "completion", "call_status", "valid", "team_reward"]].head(8)

# %% [markdown]
# The rows have the same columns, so the same cells train them: `programs.ProgramEnv(program, agents, train=tasks)` makes an environment of a program. `docs/programs.md` runs the same two agents in LangGraph, openai-agents, smolagents, pydantic-ai and AutoGen, unchanged. `lab.RewardInspector` shows the share of malformed calls per agent, and `lab.RolloutViewer` marks their rows.

# %%
lab.course.progress("16")

# %% [markdown]
# ## What to remember
#
# 1. One call of the model is one row. The result of a tool is part of the next prompt, and is never trained.
# 2. A malformed call is data: nothing repairs it, and its row has `valid=False`.
# 3. If a bad call costs the team its reward, the reward alone teaches the form.
