"""Every recipe's advantage once more, in plain loops written from the papers' formulas, to compare the package with.

Rows are dicts as `table.to_dict("records")` gives them; an answer is a list with a number per row. Nothing here uses
pandas, and nothing is imported from the package.
"""

import math
from collections import Counter

EPS = 1e-6


def mean(values):
    return math.fsum(values) / len(values)


def std(values, ddof=0):
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - ddof))


def z_score(value, center, scale, ddof=0):
    """(value - mean(center)) / (std(scale) + eps); 0 where nothing is compared, or only rounding differs."""
    if len(center) < 2 or len(scale) < 2 or math.isclose(max(scale), min(scale), rel_tol=1e-12, abs_tol=1e-12):
        return 0.0
    return (value - mean(center)) / (std(scale, ddof) + EPS)


# What an episode earned


def returns(rows):
    """Episode -> the team's rewards, an environment step once."""
    total, steps = {}, set()
    for row in rows:
        total.setdefault(row["episode"], 0.0)
        if not row["kept"]:
            continue
        if (row["episode"], row["depth"]) not in steps:
            steps.add((row["episode"], row["depth"]))
            total[row["episode"]] += row["team_reward"]
    return total


def row_credits(rows, invalid=0.0, own=0.0):
    """R of the row's episode, less the penalty for what this very row got wrong, plus what it earned its own agent."""
    total = returns(rows)
    return [total[row["episode"]] - (0.0 if row["valid"] else invalid) + own * row["local_reward"] for row in rows]


def units(rows, credits, key, once_per=None):
    """Key -> the numbers that enter the statistics: one per row, or the mean of each episode's rows."""
    inside = {}
    for number, (row, credit) in enumerate(zip(rows, credits, strict=True)):
        unit = row[once_per] if once_per else number
        inside.setdefault(tuple(row[name] for name in key), {}).setdefault(unit, []).append(credit)
    return {key: [mean(values) for values in by_unit.values()] for key, by_unit in inside.items()}


def compare(rows, credits, center, scale, center_once=None, scale_once=None, ddof=0):
    centers, scales = units(rows, credits, center, center_once), units(rows, credits, scale, scale_once)
    return [
        z_score(credit, centers[tuple(row[name] for name in center)], scales[tuple(row[name] for name in scale)], ddof)
        for row, credit in zip(rows, credits, strict=True)
    ]


# One function per recipe


def grpo(rows):
    """One number per trajectory, mu and sigma over the N trajectories of a task, the same A on every row of it."""
    total, task_of = returns(rows), {row["episode"]: row["task"] for row in rows}
    advantage = {}
    for episode, earned in total.items():
        group = [total[other] for other in total if task_of[other] == task_of[episode]]
        advantage[episode] = z_score(earned, group, group)
    return [advantage[row["episode"]] for row in rows]


def peerless(rows, credits, key):
    """For each row: is it the only one of its group, or are all credits of the group equal?"""
    groups = units(rows, credits, key)
    found = []
    for row in rows:
        own = groups[tuple(row[name] for name in key)]
        found.append(len(own) < 2 or math.isclose(max(own), min(own), rel_tol=1e-12, abs_tol=1e-12))
    return found


def grpo_masked(rows):
    """The advantages of grpo, 0 where an agent's own rows of the task are lone or flat."""
    out = peerless(rows, row_credits(rows), ("task", "agent"))
    return [0.0 if gone else advantage for advantage, gone in zip(grpo(rows), out, strict=True)]


def marshal(rows):
    """The agent's own rewards from this call on, against those of all calls of its role in the batch."""
    to_go = [math.fsum(other["local_reward"] for other in rows if other["kept"] and other["depth"] >= row["depth"]
                       and (other["episode"], other["agent"]) == (row["episode"], row["agent"]))
             for row in rows]  # fmt: skip
    return compare(rows, to_go, ("agent",), ("agent",))


def max_rl(rows):
    """(R - mean) / mean over the rows of a task; 0 where the mean is not above 0, or nothing is compared."""
    credits, groups = row_credits(rows), units(rows, row_credits(rows), ("task",))
    means = {task: mean(own) if len(own) > 1 else 0.0 for (task,), own in groups.items()}
    return [credit / means[row["task"]] - 1 if means[row["task"]] > 0 else 0.0
            for row, credit in zip(rows, credits, strict=True)]  # fmt: skip


def own_pooled(rows, invalid=0.0):
    """The agent's mean over its rows of the task; its deviation over all of its rows in the batch."""
    credits = row_credits(rows, invalid)
    plain = compare(rows, credits, ("task", "agent"), ("agent",))
    return [0.0 if gone else a for a, gone in zip(plain, peerless(rows, credits, ("task", "agent")), strict=True)]


def own_pooled_within(rows):
    """The same with the root of the mean square within the agent's groups."""
    credits, groups = row_credits(rows), units(rows, row_credits(rows), ("agent", "task"))
    advantages = []
    for row, credit in zip(rows, credits, strict=True):
        own = [values for (agent, _), values in groups.items() if agent == row["agent"]]
        freedom = sum(len(values) - 1 for values in own)
        squares = math.fsum((value - mean(values)) ** 2 for values in own for value in values)
        center = groups[row["agent"], row["task"]]
        scale = math.sqrt(squares / max(freedom, 1))
        advantages.append(0.0 if scale < 1e-12 else (credit - mean(center)) / (scale + EPS))
    return advantages


def own_share(n, values, groups):
    """n tau^2 / (n tau^2 + sigma^2) of one agent, by the moments of an analysis of variance of its groups' values."""
    sizes, total = [len(groups[g]) for g in groups], sum(map(len, groups.values()))
    if len(groups) == 1 or total == len(groups):
        return 1.0
    sigma_2 = math.fsum((values[i] - mean([values[j] for j in g])) ** 2 for g in groups.values() for i in g)
    sigma_2 /= total - len(groups)
    grand = mean([values[i] for g in groups.values() for i in g])
    between = math.fsum(len(g) * (mean([values[i] for i in g]) - grand) ** 2 for g in groups.values())
    tau_2 = max(0.0, (between - (len(groups) - 1) * sigma_2) / (total - sum(n * n for n in sizes) / total))
    return n * tau_2 / (n * tau_2 + sigma_2) if tau_2 or sigma_2 else 1.0


def with_center(rows, credits, center_of):
    """(R - center) / (the agent's deviation over the batch + eps), 0 for a row without a peer."""
    found = []
    for i, gone in enumerate(peerless(rows, credits, ("task", "agent"))):
        mine = [credits[j] for j, row in enumerate(rows) if row["agent"] == rows[i]["agent"]]
        found.append(0.0 if gone else (credits[i] - center_of(i)) / (std(mine) + EPS))
    return found


def of_agent(rows, i):
    """Places of the agent's rows: by task, and those of its other episodes in the task of row i, of its other tasks."""
    groups = {}
    for j, row in enumerate(rows):
        if row["agent"] == rows[i]["agent"]:
            groups.setdefault(row["task"], []).append(j)
    others = [j for j in groups[rows[i]["task"]] if rows[j]["episode"] != rows[i]["episode"]]
    return groups, others, [j for task, g in groups.items() if task != rows[i]["task"] for j in g]


def blend(own, prior, share):
    return own if prior is None else prior if own is None else share * own + (1 - share) * prior


def own_robust(rows):
    """The mean of the agent's other episodes in the task, mixed with what the team and its other tasks let expect."""
    credits = row_credits(rows)
    task_of, earned = {}, {}
    for row, credit in zip(rows, credits, strict=True):
        task_of[row["episode"]] = row["task"]
        earned.setdefault(row["episode"], []).append(credit)

    def task_mean(task, without=None):
        own = [mean(earned[e]) for e in earned if task_of[e] == task and e != without]
        return mean(own) if own else None

    away = [credit - task_mean(row["task"]) for row, credit in zip(rows, credits, strict=True)]

    def center(i):
        groups, others, rest = of_agent(rows, i)
        own = mean([credits[j] for j in others]) if others else None
        expected = task_mean(rows[i]["task"], rows[i]["episode"])
        prior = expected + mean([away[j] for j in rest]) if rest and expected is not None else None
        found = blend(own, prior, own_share(len(others), away, groups))
        return credits[i] if found is None else found

    return with_center(rows, credits, center)


def grpo_turns(rows):
    """The same, but a trajectory counts once for every turn in it."""
    return compare(rows, row_credits(rows), ("task",), ("task",))


def dr_mas(rows, invalid=0.0, ddof=0):
    """A_ik = (R_i - mu_k) / (sigma_k + eps), over all outputs of agent k in the task's group."""
    return compare(rows, row_credits(rows, invalid), ("task", "agent"), ("task", "agent"), ddof=ddof)


def dr_mas_released(rows, invalid=0.0):
    """The same with the sample's deviation; a row that is alone in its group keeps its raw reward."""
    credits, size = row_credits(rows, invalid), Counter((row["task"], row["agent"]) for row in rows)
    return [credit if size[row["task"], row["agent"]] == 1 else advantage
            for row, credit, advantage in zip(rows, credits, dr_mas(rows, invalid, ddof=1), strict=True)]  # fmt: skip


def dr_mas_mean(rows, invalid=0.0):
    """mu_k of the agent, sigma of the trajectories."""
    return compare(rows, row_credits(rows, invalid), ("task", "agent"), ("task",), scale_once="episode")


def dr_mas_std(rows, invalid=0.0):
    """mu of the trajectories, sigma_k of the agent."""
    return compare(rows, row_credits(rows, invalid), ("task",), ("task", "agent"), center_once="episode")


def dr_mas_episodes(rows, invalid=0.0):
    """mu_k, sigma_k, a trajectory once however often agent k spoke in it."""
    both = ("task", "agent")
    return compare(rows, row_credits(rows, invalid), both, both, center_once="episode", scale_once="episode")


def at_grpo(rows, alpha=1.0):
    """(R_c - mean_K) / std_K over the candidates of one (environment instance, agent, turn)."""
    credits = [alpha * row["team_reward"] + row["local_reward"] for row in rows]
    key = ("episode", "agent", "turn")
    return compare(rows, credits, key, key)


def grpo_mixed(rows):
    """The trajectory's reward and the row's own, every row of a task in one group."""
    return compare(rows, row_credits(rows, own=1.0), ("task",), ("task",))


def siblings(rows, credits):
    """Per row, the credits of all rows of its (node, agent), and its own place among them."""
    members = {}
    for number, row in enumerate(rows):
        members.setdefault((row["node"], row["agent"]), []).append(number)
    for number, row in enumerate(rows):
        group = members[row["node"], row["agent"]]
        yield credits[number], [credits[other] for other in group], [credits[o] for o in group if o != number]


def magrpo(rows, credits):
    return [credit - mean(group) if others else 0.0 for credit, group, others in siblings(rows, credits)]


def mareinforce(rows, credits):
    return list(credits)


def marloo(rows, credits):
    return [credit - mean(others) if others else 0.0 for credit, _, others in siblings(rows, credits)]


def maremax(rows, credits):
    return [credit - max(group) if others else 0.0 for credit, group, others in siblings(rows, credits)]


# Joint trees, as nested nodes: {"agents", "g", "mode", "name", "reward": {action: r}, "next": {action: node}}


def joint_actions(node):
    """Tuples of candidates in acting order: the i-th of all agents together, or every combination."""
    if node["mode"] == "aligned":
        return [(i,) * len(node["agents"]) for i in range(node["g"])]
    actions = [()]
    for _ in node["agents"]:
        actions = [(*action, i) for action in actions for i in range(node["g"])]
    return actions


def action_return(node, action, gamma):
    """r + gamma * mean(returns of the joint actions that follow)."""
    if action not in node["next"]:
        return node["reward"][action]
    child = node["next"][action]
    follow = [action_return(child, other, gamma) for other in joint_actions(child)]
    return node["reward"][action] + gamma * mean(follow)


def tree_rows(node, gamma, parent="", depth=0):
    """The table's rows of a nested tree, each with its `return`: the mean over the joint actions it took part in."""
    rows = []
    for seat, agent in enumerate(node["agents"]):
        for i in range(node["g"]):
            took_part = [action for action in joint_actions(node) if action[seat] == i]
            aligned = node["mode"] == "aligned"
            places = [str(i) if aligned or other == seat else "*" for other in range(len(node["agents"]))]
            rows.append({
                "task": node["task"], "episode": node["task"], "node": node["name"], "parent": parent, "depth": depth,
                "turn": depth, "agent": agent, "candidate": i, "kept": True,
                "action": f"{node['name']}.{'-'.join(places)}",
                "team_reward": mean([node["reward"][action] for action in took_part]),
                "return": mean([action_return(node, action, gamma) for action in took_part]),
            })  # fmt: skip
    for action, child in node["next"].items():
        rows += tree_rows(child, gamma, f"{node['name']}.{'-'.join(map(str, action))}", depth + 1)
    return rows


def counterfactual(rows):
    """r + the mean over the continuations that start from this very joint action of all that they then earned."""
    played = {}
    for row in rows:
        if row["probe"]:
            played.setdefault(row["episode"], {})[row["depth"]] = row
    starts = {}
    for steps in played.values():
        first = steps[min(steps)]
        starts.setdefault(first["parent"], []).append(math.fsum(row["team_reward"] for row in steps.values()))
    return [row["team_reward"] + (mean(starts[row["action"]]) if row["action"] in starts else 0.0) for row in rows]
