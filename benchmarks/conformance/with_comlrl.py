"""Answer the cases with CoMLRL's `MAGRPOTrainer` on a CPU: its rollout tree, advantages and loss.

The trainer is made without its constructor, which would load models. Its own methods build the tree of joint actions,
its returns, the advantages and the loss. Only the sampling is replaced, by the completions of the case.
"""

import sys
from types import SimpleNamespace

import accelerate  # noqa: F401  before the stand-in for wandb, which it would look for
import torch
from golden import padded, require, varies
from table_model import make_model, make_tokenizer, table_gradient

sys.modules.setdefault("wandb", SimpleNamespace())  # it only logs
from comlrl.trainers.reinforce.magrpo import MAGRPOConfig, MAGRPOTrainer  # noqa: E402

PACKAGES = ("comlrl", "torch", "transformers")
DESIGN = {
    "discounted_joint_actions": "training returns are undiscounted sums, as a comment in its code says; `discount` "
    "is not applied to them.",
    "reward_is_missing": "a loss that is NaN is replaced by a constant, so that the whole group has no gradient.",
}
NOTES = {
    "rounding_is_not_a_signal": "The deviation is taken as at least 1e-6, and the rounding of float32, 2e-8, is 0.02 "
    "of that.",
    "padding_is_not_trained": "The loss reads all tokens that `generate` returns, those behind the end included.",
    "end_of_sequence_is_trained": "The input of the loss ends before the last token of a completion, and the last "
    "logits are cut off once more.",
    "temperature_of_sampling": "Log-probabilities in the loss are those of the logits as they are; sampling divides "
    "them by `temperature`.",
}
"""Case -> the cause of a failure, as the code has it."""
MODES = {"mean": "mean", "others": "rloo", "max": "max", "none": "raw"}


def trainer(mode="mean", normalise=False, **options):
    made = object.__new__(MAGRPOTrainer)
    made.args = MAGRPOConfig(advantage_mode=mode, advantage_normalization=normalise, **options)
    made.advantage_mode = mode
    return made


class Probe(torch.nn.Module):
    """A model whose k-th call has logits of its own at each place: their gradients tell the advantages apart."""

    def __init__(self, calls, places=2, size=2):
        super().__init__()
        self.weight, self.call = torch.nn.Parameter(torch.zeros(calls, places, size)), 0

    def forward(self, input_ids, **_):
        logits = self.weight[None, self.call, : input_ids.shape[1]]
        self.call += 1
        return SimpleNamespace(logits=logits)


def advantages_of(made, returns):
    """Return the advantages that the loss uses: the slope at the first token is A_k p / K for the other token."""
    probe, n = Probe(len(returns)), len(returns)
    data = {"prompt_input_ids": torch.tensor([[1]]), "completion_input_ids": [[torch.tensor([0, 0])] * n]}
    made._compute_loss_with_gradients(probe, data, returns).backward()
    gradient = probe.weight.grad
    return [0.0] * n if gradient is None else (n * gradient[:, 0, 1] / 0.5).tolist()


def advantages(case):
    """Return the advantage of each row."""
    settings, rows = case["inputs"]["settings"], case["inputs"]["rows"]
    center, scale, credit = settings["center"], settings["scale"], settings.get("credit", "")
    require(not any(row.get("excluded") for row in rows), "all joint actions of a prompt are compared")
    require("once_per" not in center, "every completion counts")
    require(not credit.startswith("reward - 0.1"), "the reward function is the user's")
    require(not credit.startswith("reward - 0.4"), "the penalty in the return is k3")
    require(not scale or scale["by"] == center["by"], "mean and deviation are those of one group")
    require(not scale or scale["ddof"] == 0 or not varies(rows), "the deviation divides by n")
    if credit == "return_to_go":
        return {"advantages": tree(case)}
    require("turn" not in center["by"], "a turn has a group per joint action before it")
    groups = {}
    for number, row in enumerate(rows):
        groups.setdefault(tuple(row[name] for name in center["by"]), []).append(number)
    sizes = set(map(len, groups.values()))
    require(len(sizes) == 1 and min(sizes) > 1, "each prompt has `num_generations` joint actions, two or more")
    made = trainer(MODES[center["statistic"]], bool(scale))
    found = [0.0] * len(rows)
    for numbers in groups.values():
        returns = [float("nan") if rows[i]["reward"] is None else rows[i]["reward"] for i in numbers]
        for i, value in zip(numbers, advantages_of(made, returns), strict=True):
            found[i] = value
    return {"advantages": found}


def tree(case):
    """Return the advantages of joint actions in two turns. CoMLRL plays the tree, and we answer with its rewards."""
    rows, gamma = case["inputs"]["rows"], case["inputs"]["settings"]["gamma"]
    agents = sorted({row["agent"] for row in rows})
    size = 1 + max(row["candidate"] for row in rows)
    made = trainer(num_turns=2, num_generations=size, num_agents=len(agents), discount=gamma, rollout_buffer_size=100,
                   early_termination_threshold=None)  # fmt: skip
    node_rewards = {}
    for row in rows:
        node_rewards.setdefault(row["node"], {})[row["candidate"]] = row["reward"]
    queue = [[own[i] for i in range(size)] for own in node_rewards.values()]
    said = {"completions": [[""] * size], "prompts": [""], "prompt_input_ids": torch.tensor([[1]]),
            "completion_input_ids": [[torch.tensor([0])] * size]}  # fmt: skip
    made.num_agents, made.env_step, made.agents = len(agents), 0, [None] * len(agents)
    made.rollout_buffers = [[] for _ in agents]
    made.external_transition = lambda **_: [""] * len(agents)
    made._generate_completions_with_external_prompts = lambda *_, **__: said
    made._compute_rewards = lambda *_, **__: queue.pop(0)
    made._train_step_returns({"prompt": ""})
    found = []
    for place, _ in enumerate(agents):
        samples = sorted(made.rollout_buffers[place], key=lambda sample: sample.turn_idx)
        for sample in samples:
            found += advantages_of(made, sample.returns)
    return found


def generated(made, model, rows, length):
    """Return what CoMLRL keeps of completions that `generate` returns, padded to one length as `generate` does."""
    tokenizer = make_tokenizer(8)
    made.tokenizer, made.tokenizers = tokenizer, [tokenizer]
    made.formatters = [lambda item: " ".join(f"t{token}" for token in rows[0]["prompt_ids"])]
    ids = padded([row["prompt_ids"] + row["completion_ids"] for row in rows], len(rows[0]["prompt_ids"]) + length, 0)
    model.generate = lambda **_: SimpleNamespace(sequences=torch.tensor(ids))
    return made._pack_completions_for_buffer(made._generate_completions(model, [{}], num_return_sequences=len(rows)))


def loss(case):
    """Return the gradient.

    The loss leaves out the last token of a completion, which `end_of_sequence_is_trained` shows. In all other cases a
    token is appended, so that they are about their own subject.
    """
    settings, rows = case["inputs"]["settings"], case["inputs"]["rows"]
    require("repeated" not in case["name"], "rows have no identity: a completion that was drawn twice counts twice")
    simple = {"loss", "aggregate", "clip_low", "clip_high", "ratio"}
    moved = settings["loss"] != "policy_gradient" and any(
        abs(a - b) > 1e-9
        for row, now in zip(rows, case["expected"]["logprobs"], strict=True)
        for a, b in zip(row["old_logprobs"], now, strict=True)
    )
    require(not moved and settings.get("ratio", "token") == "token", "the loss is REINFORCE, without a ratio")
    require("kl" not in settings and "entropy" not in settings, "the loss has no penalty and no bonus")
    require(not any(row.get("trained") is False for row in rows), "all completions of a prompt are trained on")
    length = settings.get("pad_completions_to")
    known = not set(settings) - simple - {"pad_completions_to"}
    require(settings["aggregate"] == "sum" and known, "the loss adds up the tokens of a row")
    model = make_model(case["inputs"]["logits"])
    made, samples = trainer("raw"), {}
    behind = [] if case["name"] == "end_of_sequence_is_trained" else [0]
    for row in rows:
        samples.setdefault(tuple(row["prompt_ids"]), []).append(row)
    require(len({len(own) for own in samples.values()}) == 1, "each prompt has equally many completions")
    for prompt, own in samples.items():
        data = {"prompt_input_ids": torch.tensor([prompt]),
                "completion_input_ids": [[torch.tensor(row["completion_ids"] + behind) for row in own]]}  # fmt: skip
        if length:
            data = generated(made, model, own, length)
        value = made._compute_loss_with_gradients(model, data, [row["advantage"] for row in own])
        (value / len(samples)).backward()
    return {"gradient": table_gradient(model)}
