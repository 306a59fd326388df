"""Exercises of notebook 09: an env to repair, a plan with two candidates, a shared credit, a loss, a new env."""

import random

from mas_lab.cells.episode import EpisodeState, Generation, StepEnv
from mas_lab.check import check_env
from mas_lab.course.compare import close, need, result_of, same_credit, same_loss, tables
from mas_lab.course.exercises import NotYet, StudentCode, exercise
from mas_lab.tasks import make_env


@exercise("09.1")
def repaired(env: StudentCode):
    check_env(env, tasks=8)
    for task in env.tasks(8, "train", 0):
        total, state = task.data["sum"], env.start(task)
        half = total // 2
        for off in (0, 1, 3):
            step = env.step(state, {"left": str(half), "right": str(total - half + off)})
            what = f"{task.id}, split with an error of {off}"
            close(step.team_reward, max(0.0, 1 - off / total), f"{what}: the reward", 1e-6)
            need(step.success == (off == 0), f"{what}: success is {step.success}")
        step = env.step(state, {"left": str(total), "right": "x"})
        found = f"the reward is {step.team_reward}, and valid is {dict(step.valid)}"
        right = step.team_reward == 0 and step.valid == {"left": True, "right": False}
        need(right, f"{task.id}, the agent right says 'x': {found}")


ANSWERS = (("long answer", "short"), ("b", "a longer b"), ("same", "even"), ("the third", "3"))
"""Two candidates for each call, again from the first after the last. Of two with equal lengths, the first is kept."""
SHORTEST = ["short", "b", "same", "3"] * 2


def played(plan) -> tuple[list[dict], list[tuple[int, int]]]:
    """Play one maze as the driver does, in which no answer is a move; return rows and (call, candidate) requests."""
    env, requested = make_env("plan_path"), []
    [task] = env.tasks(1, "test", 0)
    episode = EpisodeState(env, task, task.id)

    def answered(one):
        if isinstance(one, StepEnv):
            return env.step(one.at.state, {each.agent: each.text for each in one.said})
        requested.append((one.at.depth, one.candidate))
        need(one.candidate in (0, 1), f"you ask for candidate {one.candidate}; ask for 0 and 1")
        return Generation(one.agent, one.candidate, ANSWERS[one.at.depth % 4][one.candidate], {})

    running, answers = plan(episode), None
    for _ in range(60):
        try:
            answers = [answered(one) for one in running.send(answers)]
        except StopIteration:
            return episode.rows, requested
    raise NotYet("the plan never ends: `episode.next` returns the next node, and None at the end")


@exercise("09.2")
def asks_twice(plan: StudentCode):
    rows, requested = played(plan)
    twice = sorted(requested) == [(call, candidate) for call in range(8) for candidate in range(2)]
    need(twice, f"requests (call, candidate): {requested}; ask for 0 and 1, because equal numbers give equal draws")
    chosen = [ANSWERS[row["depth"] % 4][row["candidate"]] for row in rows if row["kept"]]
    need(len(rows) == len(chosen) == 8, f"{len(rows)} rows, {len(chosen)} of them kept; record only the kept answer")
    need(chosen == SHORTEST, f"of {ANSWERS} you kept {chosen}")


@exercise("09.3")
def shared_by_turns(credit: StudentCode):
    for table in tables():
        calls = table.groupby("episode")["episode"].transform("size")
        same_credit(result_of(credit, table), table, lambda credit, calls=calls: credit / calls)


@exercise("09.4")
def a_spring(loss: StudentCode):
    def ours(now, old, advantages, row):
        return -(now - old).exp() * advantages + 0.5 / 2 * (now - old) ** 2

    same_loss(lambda *arguments: result_of(loss, *arguments), ours)


@exercise("09.5")
def an_env_of_ones_own(env: StudentCode):
    check_env(env, tasks=4)
    own = len(env.agents) > 1 and tuple(env.agents) not in (("ann", "ben"), ("left", "right"))
    need(own, f"agents are {env.agents}; use two or more roles that this notebook does not have")
    won, rng = [], random.Random(0)
    for task in env.tasks(8, "train", 0) * 12:
        state, done = env.start(task), False
        while not done:
            step = env.step(state, {agent: env.demonstrate(state, agent, rng) for agent in env.acting(state)})
            state, done = step.state, step.done
        won.append(step.success)
    share = sum(won) / len(won)
    need(0.1 <= share <= 0.9, f"demonstrated play succeeds in {share:.0%} of the episodes; it should be 10 to 90 %")
    return f'demonstrated play succeeds in {share:.0%}: lab.make_pocket(env, "my_model") is the next line'
