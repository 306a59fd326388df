"""Compare `examples/critic.py` and `examples/dpo.py` with CoMLRL 1.4.3: targets, advantages and gradients of a batch.

    pip download comlrl==1.4.3 --no-deps
    PYTHONPATH=comlrl-1.4.3-py3-none-any.whl python benchmarks/peers/comlrl_losses.py

CoMLRL's own methods compute its side. Only its sampling is replaced: they get the batch that we sampled, and values by
the same heads. Leaves out: its optimizers, how its critics learn, its sampling, and its choice of pairs.
"""

import copy
import sys
from pathlib import Path
from types import SimpleNamespace

import accelerate  # noqa: F401  before the stand-in for wandb, which it would look for
import numpy as np
import pandas as pd
import torch
from transformers import AutoModelForCausalLM, Trainer  # noqa: F401

import mas_lab as lab

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
import critic
import dpo

sys.modules.setdefault("wandb", SimpleNamespace())  # it only logs
from comlrl.trainers.actor_critic.iac import IACTrainer  # noqa: E402
from comlrl.trainers.actor_critic.maac import MAACTrainer  # noqa: E402
from comlrl.trainers.preference.madpo import AgentPreferenceTensors, MADPOTrainer, PreferencePair  # noqa: E402

GAMMA = 0.9
DEFAULTS = SimpleNamespace(
    num_agents=2, num_generations=1, discount=GAMMA, advantage_normalization=True, use_separate_critic=True,
    value_clip_range=0.2, value_loss_coef=0.6, early_termination_threshold=None, reference_kl_enabled=False,
    critic_type="v", dpo_beta=0.1, pair_selection="all", preference_pairs_per_sample=None,
)  # fmt: skip


class Actor(torch.nn.Module):
    """A policy's weights, as CoMLRL calls them."""

    def __init__(self, policy):
        super().__init__()
        self.net = copy.deepcopy(policy.model)

    def forward(self, input_ids, attention_mask, **_):
        return SimpleNamespace(logits=self.net(input_ids=input_ids, attention_mask=attention_mask).logits, values=None)


class Critic(torch.nn.Module):
    """A value head on recorded features (M, h): the "text" of a situation is its number."""

    def __init__(self, hidden_Mh, seed):
        super().__init__()
        self.hidden_Mh, self.head = hidden_Mh, torch.nn.Linear(hidden_Mh.shape[1], 1, bias=False)
        torch.nn.init.normal_(self.head.weight, generator=torch.Generator().manual_seed(seed))

    def forward(self, input_ids, **_):
        return SimpleNamespace(values=self.head(self.hidden_Mh[input_ids[:, 0]]))

    def state(self):
        return self.head.weight[0].tolist()


def trainer(kind, team, critics_of):
    """Return a trainer of CoMLRL without its constructor, which would load models. Its optimizers do not move."""
    made = object.__new__(kind)
    agents = [Actor(team[agent]) for agent in team]
    still = [torch.optim.SGD(actor.parameters(), lr=0.0) for actor in agents]
    vars(made).update(
        args=DEFAULTS, agents=agents, agent_optimizers=still, agent_devices=["cpu"] * 2, critic_device="cpu",
        critics=critics_of, critic_optimizers=[torch.optim.SGD(one.parameters(), lr=0.0) for one in critics_of],
        critic_type="v", tokenizers=[team[agent].tokenizer for agent in team], centralized_collaboration=None,
        num_agents=2, reward_processor=float, _reward_signature=None, external_transition=lambda **_: ["", ""],
    )  # fmt: skip
    made.critic_optimizer = made.critic_optimizers[0] if critics_of else None
    made._resolve_turn_prompt = lambda *_, **__: ""
    made._critic_device = lambda agent: "cpu"
    return made


def gradients_of_ours(team, turns, recipe):
    """Return the gradient of each agent's policy in our update."""
    found = {}

    def watch(step):
        found[step.name] = [gradient.clone() for _, gradient in step.policy.gradients()]

    lab.update(team, turns, recipe.loss, recipe.aggregate, max_norm=None, watch=watch)
    return found


def gap(ours, theirs):
    """Return the largest difference, relative to the largest number."""
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) / max(
        float(a.abs().max()) for a in ours
    )


def actor_critic(kind, team, turns):
    """Print the gaps for IAC or MAAC on a batch of whole episodes in which all agents act together."""
    central = kind is MAACTrainer
    rows = turns.reset_index(drop=True)
    chains = [*critic.chains(rows, team, central)]
    turns_M = [own for _, turn_rows, *_ in chains for own in turn_rows]
    moment_R = pd.Series({row: moment for moment, own in enumerate(turns_M) for row in own}).sort_index().to_numpy()
    hidden_Mh = torch.tensor(np.concatenate([features_Th for _, _, features_Th, _ in chains]), dtype=torch.float32)
    heads = [Critic(hidden_Mh, seed) for seed in range(1 if central else 2)]
    names = ["all"] if central else list(team)
    states = {name: head.state() for name, head in zip(names, heads, strict=True)}
    credit = critic.critic(central=central, gamma=GAMMA, state=states)
    recipe = (critic.MAAC if central else critic.IAC).replace(credit=credit)
    ours = recipe.advantages(rows, team)
    value_M = np.concatenate([credit.values(name, features_Th) for name, _, features_Th, _ in chains])
    ours = ours.assign(target=ours["credit"] + value_M[moment_R])
    peer = trainer(kind, team, heads)
    buffers = {agent: [] for agent in team}
    numbers = {agent: [] for agent in team}
    for _, episode in rows.groupby("episode"):
        said = {agent: iter(own.index) for agent, own in episode.groupby("agent")}
        earned = iter(episode.groupby("depth")["team_reward"].first())
        order = {agent: [] for agent in team}

        def generate(model, prompt, agent_idx, said=said, order=order, **_):
            agent = list(team)[agent_idx]
            row = next(said[agent])
            order[agent].append(row)
            prompt, ids = list(rows.at[row, "prompt_ids"]), list(rows.at[row, "completion_ids"])
            at = torch.tensor([[moment_R[row]]])
            value = heads[0 if central else agent_idx](at).values[:, 0].detach()
            peer._critic_value_from_text = lambda text: {
                "input_ids": at, "attention_mask": torch.ones_like(at), "prompt_len": 1, "value": value,
            }  # fmt: skip
            return {
                "prompt": "", "prompt_len": len(prompt), "sequences": torch.tensor([prompt + ids]), "values": [value],
                "attention_mask": torch.ones(1, len(prompt + ids)), "response_lens": [len(ids)], "completions": [""],
                "logprobs": torch.tensor([[sum(rows.at[row, "logprobs"])]]), "reference_kls": None,
            }  # fmt: skip

        peer._generate_rollout = peer._generate = generate
        peer.reward_func = lambda *_, earned=earned: [next(earned)]
        for sample in peer._collect_rollouts_multi_turn({}, episode["depth"].nunique()):
            buffers[list(team)[sample.agent_idx]].append(sample)
        for agent in team:
            numbers[agent] += order[agent]
    gradients = gradients_of_ours(team, ours, recipe)
    for place, agent in enumerate(team):
        peer._prepare_advantages(buffers[agent])
        own = ours.loc[numbers[agent]]
        if not central:
            value_of_row(peer, buffers[agent], moment_R[numbers[agent]])
        peer._ac_step(place, buffers[agent])
        target = torch.stack([sample.metadata["value_target"][0] for sample in buffers[agent]])
        advantage = torch.stack([sample.normalized_advantage.view(-1)[0] for sample in buffers[agent]])
        policy = [p.grad for name, p in peer.agents[place].net.named_parameters()]
        print(
            f"{recipe.name}, {agent}, {len(own)} rows: "
            f"target {gap([torch.tensor(own['target'].to_numpy())], [target]):.0e}, "
            f"advantage {gap([torch.tensor(own['advantage'].to_numpy())], [advantage]):.0e}"
            f", policy gradient {gap(gradients[team.name_of(agent)], policy):.0e}"
        )


def value_of_row(peer, buffer, moments):
    """Let IAC's value pass, which gets a row's tokens, find the row's recorded hidden state."""
    found = {tuple(sample.full_input_ids.tolist()) + (sample.prompt_len,): at
             for sample, at in zip(buffer, moments, strict=True)}  # fmt: skip
    peer._value_for_critic_type = lambda model, ids, mask, prompt_len, lengths: model(
        input_ids=torch.tensor([[found[(*ids[0].tolist(), prompt_len)]]])
    ).values[:, 0]


def preferences(team, turns):
    """Print the gaps for MADPO, averaged over nodes, with all pairs of a node.

    CoMLRL leaves the last token of a completion out: `_sequence_log_prob` drops it from the input, and the last logits.
    """
    recipe = dpo.MADPO
    peer = trainer(MADPOTrainer, team, [])
    cut = turns.assign(**{name: turns[name].map(lambda one: one[:-1]) for name in ("completion_ids", "logprobs")})
    whole, short = (gradients_of_ours(make_team(), recipe.advantages(rows), recipe) for rows in (turns, cut))
    nodes = [node for _, node in turns.groupby("node")]
    pairs = []
    for node in nodes:
        by = node.set_index(["agent", "candidate"])
        earned = node.groupby("candidate")["team_reward"].first().tolist()
        for better, worse in peer._select_preference_pair_indices(earned):
            tensors = [
                AgentPreferenceTensors(
                    *[torch.tensor(list(by.at[key, column])) for key, column in (
                        ((agent, better), "prompt_ids"), ((agent, better), "completion_ids"),
                        ((agent, worse), "completion_ids"),
                    )]
                )
                for agent in team
            ]  # fmt: skip
            pairs.append((node["node"].iloc[0], PreferencePair([], [], [], tensors, 0.0, 0.0, 0.0)))
    for place, agent in enumerate(team):
        for name in dict.fromkeys(name for name, _ in pairs):
            own = [pair for node, pair in pairs if node == name]
            loss = peer._agent_preference_loss(place, own, peer._detached_agent_deltas(own))
            (loss / len(nodes)).backward()
        theirs = [p.grad for p in peer.agents[place].net.parameters()]
        print(
            f"madpo, {agent}, {len(nodes)} nodes, {len(pairs)} pairs: "
            f"policy gradient {gap(whole[agent], theirs):.0e}, without the last token {gap(short[agent], theirs):.0e}"
        )


ENV = lab.make_env("code_pair", max_turns=2)


def make_team():
    """Return a team in which each agent has weights of its own."""
    return lab.Team.per_agent(lambda agent: lab.load_policy(ENV.pocket), ENV.agents)


def main():
    """Print all gaps."""
    played = lab.rollout(ENV, make_team(), ENV.tasks(4, "train", 0), lab.episodes(4))
    for kind in (IACTrainer, MAACTrainer):
        actor_critic(kind, make_team(), played)
    preferences(make_team(), lab.rollout(ENV, make_team(), ENV.tasks(4, "train", 0), lab.joint(4), max_turns=1))


if __name__ == "__main__":
    main()
