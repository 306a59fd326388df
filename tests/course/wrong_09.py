import random
from dataclasses import dataclass

import mas_lab as lab


@dataclass(frozen=True)
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
        valid = {agent: text.isdecimal() and text.isascii() for agent, text in actions.items()}
        error = abs(sum(map(int, actions.values())) - state["sum"]) if all(valid.values()) else state["sum"]
        reward = max(0.0, 1 - error / state["sum"])
        local = {agent: float(ok) for agent, ok in valid.items()}
        return lab.Step({**state, "said": dict(actions)}, reward, local, valid, self.won(error), True)

    def won(self, error):
        return error == 0


class Changes(Split):
    def step(self, state, actions):
        state["said"].update(actions)
        return super().step(state, actions)


class Unfinite(Split):
    def step(self, state, actions):
        step = super().step(state, actions)
        reward = step.team_reward if all(step.valid.values()) else float("-inf")
        return lab.Step(step.state, reward, step.local_rewards, step.valid, step.success, True)


class Lenient(Split):
    def won(self, error):
        return error <= 1


class Gutted(Split):
    def step(self, state, actions):
        return lab.Step(state, 0.0, dict.fromkeys(actions, 0.0), dict.fromkeys(actions, True), False, True)


class HigherLower:
    agents, max_turns, max_return, max_tokens, pocket = ("guesser", "hinter"), 3, 1.0, 1, ""
    splits_meet, luck = True, 0.3

    def tasks(self, n, split, seed):
        numbers = random.Random(seed).sample(range(1, 10), n)
        return [lab.Task(f"number {number}", {"number": number}) for number in numbers]

    def start(self, task):
        return (task.data["number"],)

    def acting(self, state):
        return self.agents[1 - len(state) % 2 : 2][:1]

    def observe(self, state, agent):
        told = state if agent == "hinter" else state[1:]
        return [{"role": "user", "content": " ".join(map(str, (*told, agent)))}]

    def step(self, state, actions):
        [(agent, text)] = actions.items()
        right = agent == self.agents[0] and text == str(state[0])
        done = right or len(state) == 6
        return lab.Step((*state, text), float(right), {agent: float(right)}, {agent: True}, right, done)

    def demonstrate(self, state, agent, rng):
        if agent == self.agents[0]:
            return str(state[0] if rng.random() < self.luck else rng.randrange(1, 10))
        return rng.choice(("higher", "lower"))


def changed(**attributes):
    return (type("Changed", (HigherLower,), attributes)(),)


class Plan:
    """Asks for `numbers` and keeps one by `best`."""

    instances = 1

    def __init__(self, numbers=(0, 1), best=lambda said: min(said, key=lambda one: len(one.text)), on=True, all_=False):
        self.numbers, self.best, self.on, self.all = numbers, best, on, all_

    def __call__(self, game):
        at = game.start()
        while at is not None:
            [agent] = game.acting(at)
            said = yield [lab.Generate(at, agent, number) for number in self.numbers]
            kept = self.best(said)
            [step] = yield [lab.StepEnv(at, [kept])]
            for one in said if self.all else [kept]:
                game.record(at, [one], step)
            at = game.next(at, [kept], step) if self.on else at


def credit(turns, by="episode", how="size"):
    return lab.episode_return()(turns) / turns.groupby(by)["agent"].transform(how)


def loss(logprobs_N, old_N, advantages_N, row_N, pull=0.25):
    moved_N = logprobs_N - old_N
    return -moved_N.exp() * advantages_N + pull * moved_N**2


RIGHT = {
    "09.1": [(Split(),)],
    "09.2": [(Plan(),)],
    "09.3": [(credit,)],
    "09.4": [(loss,)],
    "09.5": [(HigherLower(),)],
}
WRONG = {
    "09.1": [(Changes(),), (Unfinite(),), (Lenient(),), (Gutted(),), (Split,)],
    "09.2": [
        (Plan((0, 0)),),
        (Plan(best=lambda said: max(said, key=lambda one: len(one.text))),),
        (Plan(best=lambda said: said[0]),),
        (Plan(best=lambda said: min(reversed(said), key=lambda one: len(one.text))),),
        (Plan(on=False),),
        (Plan(all_=True),),
        (lab.episodes(1),),
        (Plan,),
    ],
    "09.3": [
        (lambda turns: credit(turns, by=["episode", "agent"]),),
        (lambda turns: credit(turns, how="nunique"),),
        (lambda turns: turns["team_reward"] / turns.groupby("episode")["episode"].transform("size"),),
        (lambda turns: 1.0,),
    ],
    "09.4": [
        (lambda *given: loss(*given, pull=0.0),),
        (lambda *given: loss(*given, pull=0.5),),
        (lambda *given: loss(*given, pull=-0.25),),
        (lab.clipped(0.2).__call__,),
        (lambda *given: -loss(*given),),
        (lambda *given: loss(*given).mean(),),
        (lambda now, *given: loss(now.detach(), *given),),
    ],
    "09.5": [
        changed(luck=0.7),
        changed(agents=("ann", "ben")),
        changed(agents=("guesser", "hinter", "judge")),
        (Unfinite(),),
        (HigherLower,),
    ],
}
