"""The whole method in one file: sample, rollout, group, normalize, loss, update.

For reading, for teaching, and to check the cells against: they compute the same, faster and for any team. Leaves out
batches over several prompts, agents that act at once, devices, checkpoints and error messages. An environment is as in
`mas_lab.env`. Shapes: `_K` candidates of one prompt, `_T` tokens of one completion, `_V` vocabulary.
"""

from dataclasses import dataclass

import pandas as pd
import torch


@dataclass
class Policy:
    """Hold a causal language model of transformers, its tokenizer, and the optimizer of its weights."""

    model: torch.nn.Module
    tokenizer: object
    optimizer: torch.optim.Optimizer


# Cell 1: rollout


@torch.no_grad()
def sample(policy, messages, n, max_tokens, rng, temperature=1.0):
    """Draw `n` completions of one chat, token by token.

    The cache keeps the keys and values of earlier tokens, so the model reads every token once. A completion ends with
    the end-of-sequence token, which belongs to it, or after `max_tokens`. The logits are divided by `temperature`.

    Returns:
        A dict per candidate: ids of prompt and completion, log-probabilities of the sampled tokens, text.
    """
    prompt = policy.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    drawn = [{"prompt_ids": list(prompt), "completion_ids": [], "logprobs": [], "temperature": temperature,
             "candidate": k} for k in range(n)]  # fmt: skip
    tokens_K, cache, live = torch.tensor([prompt] * n), None, list(drawn)
    for _ in range(max_tokens):
        out = policy.model(tokens_K, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        logprobs_KV = (out.logits[:, -1].float() / temperature).log_softmax(-1)
        tokens_K = torch.multinomial(logprobs_KV.exp(), 1, generator=rng)
        for one in live:
            token = tokens_K[one["candidate"]].item()
            one["completion_ids"].append(token)
            one["logprobs"].append(logprobs_KV[one["candidate"], token].item())
        live = [one for one in live if one["completion_ids"][-1] != policy.model.config.eos_token_id]
        if not live:
            break
    return [{**one, "completion": policy.tokenizer.decode(one["completion_ids"], skip_special_tokens=True)}
            for one in drawn]  # fmt: skip


def rollout(env, players, tasks, rng, episodes=1, candidates=1):
    """Play each task and record a row per model call.

    With one candidate, each of the `episodes` is a chain of turns (GRPO, Dr. MAS). With K candidates, the agent draws K
    at every turn, the environment scores each, and the best moves the state (the tree of AT-GRPO, arXiv 2510.11062).

    Args:
        env: The environment, in which one agent acts at a time.
        players: Agent name -> `Policy`; several agents may share one.
        tasks: A list of tasks.
        rng: A `torch.Generator`.
        episodes: How often each task is played.
        candidates: K.

    Returns:
        The table: a row per model call.
    """
    rows = []
    for task, number in ((task, number) for task in tasks for number in range(episodes)):
        state, depth, turns, done = env.start(task), 0, dict.fromkeys(env.agents, 0), False
        while not done:
            (agent,) = env.acting(state)
            drawn = sample(players[agent], env.observe(state, agent), candidates, env.max_tokens, rng)
            steps = [env.step(state, {agent: one["completion"]}) for one in drawn]
            rewards = [step.team_reward + step.local_rewards[agent] for step in steps]
            best = rewards.index(max(rewards))
            rows += [{"task": task.id, "episode": f"{task.id}#{number}", "depth": depth, "turn": turns[agent],
                      "agent": agent, **one, "kept": one is drawn[best], "team_reward": step.team_reward,
                      "local_reward": step.local_rewards[agent], "success": step.success}
                     for one, step in zip(drawn, steps, strict=True)]  # fmt: skip
            state, depth, turns[agent] = steps[best].state, depth + 1, turns[agent] + 1
            done = steps[best].done or any(turns[one] >= env.max_turns for one in env.acting(state))
    return pd.DataFrame(rows)


# Cell 2: group


def episode_return(turns):
    """Return the sum of `team_reward` over the kept steps of the row's episode; a joint step counts once."""
    steps = turns[turns["kept"]].drop_duplicates(["episode", "depth"])
    return turns["episode"].map(steps.groupby("episode")["team_reward"].sum())


def mixed(turns):
    """Return the team's plus the agent's own reward for this action: AT-GRPO, arXiv 2510.11062, section 4.2."""
    return turns["team_reward"] + turns["local_reward"]


def return_to_go(turns):
    """Return r + the mean return of the joint actions that follow: MAGRPO, arXiv 2508.04652, section 4."""
    returns = turns["team_reward"].astype(float)
    for depth in range(turns["depth"].max(), 0, -1):
        future = returns[turns["depth"] == depth].groupby(turns["parent"]).mean()
        returns = returns + turns["action"].map(future).fillna(0.0)
    return returns


def group(turns, by, credit):
    """Add `credit`, the number that is compared, and `group`: rows with equal values in the columns `by`."""
    return turns.assign(credit=credit(turns), group=turns.groupby(list(by), sort=False).ngroup())


# Cell 3: normalize


def normalize(turns, once_per=None, divide=True, eps=1e-6):
    """Add `advantage` = (credit - mean of its group) / (standard deviation of its group + eps).

    With `once_per="episode"` each episode counts once (GRPO, arXiv 2402.03300). Without `divide` only the mean is
    subtracted (MAGRPO). A row gets 0 if it is alone in its group, or if all credits to divide by are equal.
    """
    units = turns.groupby(["group", turns[once_per] if once_per else turns.index])["credit"].mean()
    groups = units.groupby(level="group")
    stats = pd.DataFrame({"n": groups.size(), "mean": groups.mean(), "std": groups.std(ddof=0)})
    stats["flat"] = groups.max() - groups.min() <= 2**-21 * units.abs().groupby(level="group").max()  # of float32
    at = stats.loc[turns["group"]].set_axis(turns.index)
    advantage = (turns["credit"] - at["mean"]) / (at["std"] + eps if divide else 1.0)
    return turns.assign(advantage=advantage.mask((at["n"] < 2) | (at["flat"] & divide), 0.0))


# Cell 4: update


def clipped(logprobs_T, old_T, advantage, clip=0.2):
    """Return -min(rho A, clip(rho) A) per token, rho = p / p_old: PPO, arXiv 1707.06347, equation 7."""
    ratio_T = (logprobs_T - old_T).exp()
    return -torch.minimum(ratio_T * advantage, ratio_T.clamp(1 - clip, 1 + clip) * advantage)


def reinforce(logprobs_T, old_T, advantage):
    """Return -A log p per token: MAGRPO, arXiv 2508.04652, equation 4."""
    return -advantage * logprobs_T


def update(players, turns, loss=clipped, mean_over="tokens", max_norm=1.0):
    """Make one optimizer step with every policy and return each agent's gradient norm before clipping.

    The loss of a policy is the mean over all tokens of its rows, or, with `mean_over="rows"`, the sum over a row's
    tokens, averaged over rows (MAGRPO). The gradient is computed agent by agent, so that agents with shared weights
    have norms of their own; their sum is clipped at `max_norm`.
    """
    norms = {}
    for policy in {id(policy): policy for policy in players.values()}.values():
        own = turns[[players[agent] is policy for agent in turns["agent"]]]
        if own.empty:
            continue
        count = own["completion_ids"].map(len).sum() if mean_over == "tokens" else len(own)
        weights, total = list(policy.model.parameters()), None
        for agent, rows in own.groupby("agent", sort=False):
            policy.optimizer.zero_grad()
            for row in rows.itertuples():
                ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
                logits_TV = policy.model(ids).logits[0, len(row.prompt_ids) - 1 : -1].float() / row.temperature
                logprobs_T = logits_TV.log_softmax(-1)[range(len(row.completion_ids)), row.completion_ids]
                (loss(logprobs_T, torch.tensor(row.logprobs), row.advantage).sum() / count).backward()
            gradient = [weight.grad.clone() for weight in weights]
            norms[agent] = torch.nn.utils.get_total_norm(gradient).item()
            total = gradient if total is None else [a + b for a, b in zip(total, gradient, strict=True)]
        for weight, part in zip(weights, total, strict=True):
            weight.grad = part
        torch.nn.utils.clip_grad_norm_(weights, max_norm)
        policy.optimizer.step()
    return norms
