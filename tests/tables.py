"""Random tables in the shapes that the three kinds of plan leave behind, drawn from a seed; spikes of a table."""

import numpy as np
import pandas as pd
from reference import joint_actions, tree_rows

from mas_lab.explain.spike_rule import spike_scores


def reward(rng, flat):
    """Eighths are exact in binary, so that a flat group is flat in any order of summation; the rest is not."""
    if flat:
        return 0.25
    return float(rng.integers(-8, 9)) / 8 if rng.random() < 0.7 else float(rng.normal())


def episode_rows(rng, task, episode, flat):
    """Planner, executor, sometimes a fixer, sometimes two critics who speak at once and share a reward."""
    rows, said, depth, node, before = [], {}, 0, f"{episode}/0", ""
    for _ in range(rng.integers(1, 4)):
        steps = [["planner"], ["executor"]]
        steps += [["fixer"]] * (rng.random() < 0.3) + [["critic", "judge"]] * (rng.random() < 0.5)
        for agents in steps:
            earned = reward(rng, flat) if agents != ["planner"] else 0.0
            for agent in agents:
                rows.append({
                    "step": 0, "task": task, "episode": episode, "node": node, "parent": before, "depth": depth,
                    "turn": said.get(agent, 0), "agent": agent, "candidate": 0, "kept": True,
                    "valid": bool(rng.random() < 0.8), "team_reward": 0.0 if flat and depth else earned,
                    "local_reward": reward(rng, flat),
                })  # fmt: skip
                said[agent] = said.get(agent, 0) + 1
            depth += 1
            before, node = f"{node}.{'-'.join('0' for _ in agents)}", f"{episode}/{depth}"
    return rows


def episodes_table(seed):
    """Several tasks: uneven calls per agent, lone fixers, flat tasks, a task with one episode; rows in any order."""
    rng = np.random.default_rng(seed)
    rows = []
    for task in range(rng.integers(1, 4)):
        flat = rng.random() < 0.2
        for number in range(rng.integers(1, 7)):
            rows += episode_rows(rng, f"t{task}", f"t{task}#{number}", flat)
    return shuffled(pd.DataFrame(rows), rng)


def candidates_table(seed):
    """K candidates at each (episode, agent, turn), one of them kept, some groups flat, one prompt per group."""
    rng = np.random.default_rng(seed)
    k, rows = int(rng.integers(1, 6)), []
    for task in range(rng.integers(1, 4)):
        before = ""
        for depth in range(2 * rng.integers(1, 4)):
            agent, node, kept = ("planner", "executor")[depth % 2], f"t{task}/{depth}", rng.integers(k)
            flat = rng.random() < 0.25
            for candidate in range(k):
                rows.append({
                    "task": f"t{task}", "episode": f"t{task}", "node": node, "parent": before, "depth": depth,
                    "turn": depth // 2, "agent": agent, "candidate": candidate, "kept": bool(candidate == kept),
                    "prompt_ids": [task, depth], "team_reward": reward(rng, flat), "local_reward": reward(rng, flat),
                })  # fmt: skip
            before = f"{node}.{kept}"
    return shuffled(pd.DataFrame(rows), rng)


def random_tree(rng, task, agents, g, mode, depth=0, name=None):
    node = {"task": task, "agents": agents, "g": g, "mode": mode, "name": name or f"{task}/0", "reward": {}, "next": {}}
    for branch, action in enumerate(joint_actions(node)):
        node["reward"][action] = reward(rng, False)
        if depth < 2 and rng.random() < (0.7 if depth == 0 else 0.25):
            child = f"{node['name']}~{branch}"
            node["next"][action] = random_tree(rng, task, agents, g, mode, depth + 1, child)
    return node


def joint_table(seed, mode, gamma, agents=None):
    """Joint trees of several tasks, with the `return` of every row by recursion over the nested tree."""
    rng = np.random.default_rng(seed)
    agents = agents or ["left", "right", "third"][: int(rng.integers(1, 4))]
    g, rows = int(rng.integers(1, 4)), []
    for task in range(rng.integers(1, 3)):
        rows += tree_rows(random_tree(rng, f"t{task}", agents, g, mode), gamma)
    return shuffled(pd.DataFrame(rows), rng)


def shuffled(table, rng):
    """The same rows in another order, under an index that says nothing."""
    return table.iloc[rng.permutation(len(table))].reset_index(drop=True)


def spikes(stats, **rule):
    """The spikes among the norms of `update`'s statistics, highest score first."""
    scored = spike_scores(stats, **rule)
    return scored[scored["spike"]].sort_values("score", ascending=False, ignore_index=True)
