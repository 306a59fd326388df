"""A training step of mas_lab: the four cells, for a recipe, on fixed prompts.

`--agents=2` deals the prompts out to two agents, who take turns (or act together, under `magrpo`), so that the step has
as many prompts, completions and tokens as with one. `--own-weights` gives each agent a policy of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stopwatch import LEARNING_RATE, Stopwatch, arguments, reward

args = arguments(
    ("--recipe", {"default": "at_grpo"}),
    ("--agents", {"type": int, "default": 1}),
    ("--own-weights", {"action": "store_true"}),
)

import mas_lab as lab  # noqa: E402  the environment of the stopwatch has to be set before torch is used
from mas_lab.backends.torch.threads import set_threads  # noqa: E402


@dataclass(frozen=True)
class FixedPrompts:
    """Each agent is asked one fixed prompt of the task, once, and earns the reward of its completion.

    The state is (task's prompts, agents that have spoken); `together` lets all agents act at once.
    """

    prompts: tuple[str, ...]
    agents: tuple[str, ...]
    max_tokens: int
    together: bool
    name: str = "fixed_prompts"
    max_turns: int = 1
    max_return: float = 2.0
    pocket: str = ""

    def tasks(self, n, split, seed):
        count = len(self.prompts) // len(self.agents)
        dealt = [self.prompts[i::count] for i in range(count)]
        return [lab.Task(f"t{i}", {"prompts": prompts}) for i, prompts in enumerate(dealt[:n])]

    def start(self, task):
        return (task.data["prompts"], 0)

    def acting(self, state):
        return self.agents if self.together else self.agents[state[1] : state[1] + 1]

    def observe(self, state, agent):
        return [{"role": "user", "content": state[0][self.agents.index(agent)]}]

    def step(self, state, actions: Mapping[str, str]):
        rewards = {agent: reward(text) for agent, text in actions.items()}
        spoken = state[1] + len(actions)
        done = spoken == len(self.agents)
        valid = dict.fromkeys(actions, True)
        total = sum(rewards.values())
        return lab.Step((state[0], spoken), total, dict.fromkeys(actions, 0.0), valid, done and total > 0.5, done)


set_threads(1)
recipe = lab.RECIPES[args.recipe]
plan = recipe.plan
size = {field: args.candidates for field in ("n", "k", "g") if hasattr(plan, field)}
recipe = recipe.replace(plan=replace(plan, **size))
names = ("planner", "executor")[: args.agents]
env = FixedPrompts(tuple(args.prompts), names, args.new_tokens, together=args.recipe.startswith("ma"))


def policy(agent: str = ""):
    return lab.load_policy(args.model, lr=LEARNING_RATE)


team = lab.Team.per_agent(policy, names) if args.own_weights else lab.Team.shared(policy(), names)
tasks = env.tasks(len(args.prompts) // args.agents, "train", 0)

watch = Stopwatch()
watch.start()
for step in range(args.warmup + args.steps):
    turns = lab.rollout(env, team, tasks, plan=recipe.plan, seed=0, step=step)
    watch.count(map(len, turns["completion_ids"]))
    turns = recipe.advantages(turns)
    lab.update(team, turns, loss=recipe.loss, aggregate=recipe.aggregate)
    watch.split()
watch.write(args, "transformers")
