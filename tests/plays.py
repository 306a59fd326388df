"""An episode by hand: what is said goes to whoever is to act."""

from dataclasses import asdict

from mas_lab.env import Task


def task_of(problem):
    """A programming problem as a task."""
    return Task("t", asdict(problem))


def in_turn(env, task, texts):
    """(agent, step) of each text, where agents act one at a time. Nobody acts after the end, and only then."""
    state, steps = env.start(task), []
    for text in texts:
        (agent,) = env.acting(state)
        steps.append((agent, env.step(state, {agent: text})))
        state = steps[-1][1].state
        assert (env.acting(state) == ()) == steps[-1][1].done
    return steps


def together(env, task, turns):
    """The step of each turn; a turn has the texts of those that act, in their order, or one text."""
    state, steps = env.start(task), []
    for texts in turns:
        said = (texts,) if isinstance(texts, str) else texts
        steps.append(env.step(state, dict(zip(env.acting(state), said, strict=True))))
        state = steps[-1].state
    return steps


def earned(step):
    """Team reward, local rewards, success and end of a step."""
    return step.team_reward, *step.local_rewards.values(), step.success, step.done
