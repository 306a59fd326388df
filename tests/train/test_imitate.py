"""A step is that of plain cross-entropy, the loss falls, and only the agents that learn change."""

import random
from dataclasses import dataclass

import pytest
import small
import torch
from backends.drawn import same, weights

import mas_lab as lab
from mas_lab.env import EnvError
from mas_lab.train.demonstrations import play, speaker


@dataclass(frozen=True)
class Fluent(small.Relay):
    """Answers three words of the task's kind; the second is drawn."""

    answer: str | None = None
    """A text in place of it."""

    def demonstrate(self, state, agent, rng):
        drawn = f"w{rng.randrange(int(state.word[1]) % 2, 8, 2)}"
        return f"{state.word} {drawn} {state.word}" if self.answer is None else self.answer


ENV = Fluent()
EOS = 1


def imitate(team, **changes):
    return lab.imitate(team, **({"env": ENV, "tasks": 4, "steps": 3, "batch": 6} | changes))


def answered(policy, tasks):
    """(prompt, answer) ids of the demonstrations, written by hand."""
    rng = random.Random("0 asker doer")
    for one in (one for task in tasks for one in play(ENV, task, speaker(ENV, rng))):
        prompt = f"user {one.messages[0]['content']} say"
        yield policy.tokenizer(prompt)["input_ids"], [*policy.tokenizer(one.text)["input_ids"], EOS]


@pytest.mark.parametrize("rank", [None, 2])
def test_a_step_is_that_of_plain_cross_entropy(models, rank):
    """To 1e-6 of the gradient, which SGD at rate 1 takes off the weights."""
    policy, plain = (lab.load_policy(models / "a", lora=rank, lr=1e-2, optimizer="sgd") for _ in range(2))
    before, tasks = weights(policy), ENV.tasks(6, "train", 0)
    [row] = imitate(lab.Team.shared(policy, small.AGENTS), tasks=tasks, steps=1, lr=1.0, max_norm=None).itertuples()
    pairs = [*answered(plain, tasks)][:6]
    targets = torch.tensor([i for _, answer in pairs for i in answer])
    rows = [plain.model(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
            for prompt, answer in pairs]  # fmt: skip
    logits_NV = torch.cat(rows)
    loss = torch.nn.functional.cross_entropy(logits_NV, targets)
    loss.backward()
    gaps = [before[name] - weights(policy)[name] - gradient for name, gradient in plain.gradients()]
    norm = plain.gradient_norm()
    assert torch.cat([gap.flatten() for gap in gaps]).norm().item() < 1e-6 * norm
    assert (row.loss, row.policy_norm) == pytest.approx((loss.item(), norm), rel=1e-6)
    above = logits_NV.softmax(-1)[range(len(targets)), targets] > 0.5
    assert (row.step, row.policy, row.tokens) == (0, "shared", len(targets))
    assert row.above_half == pytest.approx(above.double().mean().item())


def test_the_loss_falls_and_the_team_then_plays_as_demonstrated(models):
    team, tasks = small.make_team("shared", models), ENV.tasks(8, "test", 0)
    assert ENV.demonstrate(ENV.start(tasks[0]), "asker", random.Random(0)).split()[0] == tasks[0].data["word"]
    before = lab.evaluate(ENV, team, tasks, k=4)["own_return"].mean()
    table = imitate(team, tasks=16, steps=60, batch=32)
    assert list(table) == [*lab.schema("imitate")["column"]] and list(table["step"]) == [*range(60)]
    assert table["loss"].iloc[-1] < 0.7 < 2.0 < table["loss"].iloc[0]
    assert table["above_half"].iloc[-1] > 0.7
    assert lab.evaluate(ENV, team, tasks, k=4)["own_return"].mean() > before + 0.2


@pytest.mark.parametrize("kind", ["lora", "unlike"])
def test_every_policy_learns_from_its_own_agents_and_frozen_ones_stay(models, kind):
    def trained(frozen=(), seed=0):
        team = small.make_team(kind, models)
        before = {name: weights(policy) for name, policy in team.policies.items()}
        table = imitate(lab.Team(dict(team), team.sampling, frozen), seed=seed, steps=2)
        return before, {name: weights(policy) for name, policy in team.policies.items()}, table

    before, both, table = trained()
    assert list(table["policy"]) == ["asker", "doer"] * 2
    assert not any(same(before[name], both[name]) for name in both)
    _, frozen, table = trained(frozen="doer")
    assert list(table["policy"]) == ["asker"] * 2
    assert same(before["doer"], frozen["doer"])
    assert same(both["asker"], frozen["asker"]), "the same seed gives the same weights"
    assert not same(trained(seed=1)[1]["doer"], both["doer"])


def test_a_frozen_agent_of_a_shared_policy_teaches_nothing(models):
    """The episodes have one turn each, so that the doer's answer has no influence on the next."""

    def trained(env):
        policy = lab.load_policy(models / "a")
        imitate(lab.Team.shared(policy, small.AGENTS, frozen="doer"), env=env)
        return weights(policy)

    class Other(Fluent):
        def demonstrate(self, state, agent, rng):
            text = super().demonstrate(state, agent, rng)
            return "w1" if agent == "doer" else text

    assert same(trained(Fluent(max_turns=1)), trained(Other(max_turns=1)))


def test_a_training_starts_anew_from_the_adapter_of_another(models, tmp_path):
    """No optimizer state is left, and each adapter's reference is the warm start."""
    base = lab.load_base(models / "a", adapters=2, rank=2, lr=1e-2)
    team = lab.Team.per_agent(base.adapter, small.AGENTS)
    first = team["asker"]
    imitate(lab.Team.shared(first, small.AGENTS))
    assert not first.optimizer.state
    first.save(tmp_path / "warm")
    for agent in team:
        team[agent].load_weights(tmp_path / "warm")
    assert not any(policy.optimizer.state for policy in team.values())
    alone = lab.load_policy(models / "a", lora=2, lr=1e-2)
    imitate(lab.Team.shared(alone, small.AGENTS))
    for started in (team, lab.Team.shared(alone, small.AGENTS)):
        turns = lab.rollout(ENV, started, ENV.tasks(2, "train", 0), lab.episodes(4))
        stats = lab.update(started, lab.RECIPES["grpo"].advantages(turns), lab.clipped(kl=0.1))
        assert stats["kl"].to_numpy() == pytest.approx(0.0, abs=1e-9) and len(stats) == 2


def test_after_an_interrupt_a_training_starts_anew_too(models, monkeypatch):
    policy = lab.load_policy(models / "a")
    make_step = policy.optim_step

    def interrupted(*arguments):
        if policy.version == 2:
            raise KeyboardInterrupt
        return make_step(*arguments)

    monkeypatch.setattr(policy, "optim_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        imitate(lab.Team.shared(policy, small.AGENTS))
    assert policy.version == 2 and not policy.optimizer.state
    assert not any(gradient.any() for _, gradient in policy.gradients())


PLACE = r"env 'relay', task 'train-\d+', agent 'asker', turn 0: "


@pytest.mark.parametrize("changes, error, why", [
    ({"env": small.Relay()}, EnvError, r"imitate: Relay has no `demonstrate\(self, state, agent, rng\) -> str`; write"),
    ({"env": Fluent(answer=7)}, EnvError, PLACE + r"demonstrate gave 7; give a str"),
    ({"env": Fluent(answer="w1 xyz")}, EnvError, PLACE + r".* its tokenizer has no tokens for 'w1 xyz'"),
    ({"env": Fluent(answer="w1 " * 60)}, EnvError, PLACE + r".* 5 prompt tokens \+ max_tokens 61 = 66 exceed the"),
    ({"tasks": []}, EnvError, "imitate: asker and doer did not act in 100 draws of 0 tasks; give tasks"),
    ({"batch": 0}, ValueError, r"imitate: batch=0 .*; give a whole number \(1 or more"),
])  # fmt: skip
def test_what_cannot_be_imitated_changes_nothing_and_names_the_place(models, changes, error, why):
    policy = lab.load_policy(models / "a")
    before = weights(policy)
    with pytest.raises(error, match=why):
        imitate(lab.Team.shared(policy, small.AGENTS), **changes)
    assert same(before, weights(policy)) and policy.version == 0
