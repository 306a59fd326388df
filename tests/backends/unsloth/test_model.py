"""The real Unsloth, by its CPU back end: plain transformers and PEFT below, its loader, adapters and switching above.

Needs an environment of its own: `make test-unsloth`. Leaves out the fused kernels, which need a GPU.
"""

import re
import subprocess
import sys

import pytest

unsloth = pytest.importorskip("unsloth")  # before transformers

import torch  # noqa: E402
from backends.drawn import drawn, same, weights  # noqa: E402
from backends.smollm2 import learns  # noqa: E402

import mas_lab as lab  # noqa: E402
from mas_lab.policy import PolicyError, Request  # noqa: E402

pytestmark = pytest.mark.engines
torch.set_num_threads(1)
ENV = lab.make_env("plan_path")
SMALL = {"tasks": 4, "check": False, "max_turns": 2}
CLOSE = 1e-4


def make_base(**options):
    return lab.load_base(ENV.pocket, backend="unsloth", adapters=2, rank=4, **options)


@pytest.fixture(scope="module")
def base():
    """Two adapters that are no longer zero."""
    base = make_base()
    torch.manual_seed(1)
    with torch.no_grad():
        for agent in ENV.agents:
            for parameter in base.adapter(agent).parameters.values():
                parameter.add_(0.03 * torch.randn_like(parameter))
    return base


def requests(policy, n=6, seed=0):
    """Prompts of unlike length, three draws each."""
    texts = [ENV.observe(ENV.start(task), agent) for task in ENV.tasks(n, "train", seed) for agent in ENV.agents[:1]]
    prompts = [tuple(policy.encode(messages))[i % 3 :] for i, messages in enumerate(texts)]
    return [Request(prompt, 6, 0.9, 100 * seed + 10 * i + k) for i, prompt in enumerate(prompts) for k in range(3)]


def samples(policy, seed=0):
    return drawn(policy, requests(policy, seed=seed))


@pytest.mark.parametrize(
    ("name", "plan"), [("dr_mas", lab.episodes(3)), ("at_grpo", lab.tree(3)), ("magrpo", lab.joint(2))]
)
def test_recipes_of_each_plan_learn(name, plan):
    recipe = lab.RECIPES[name].replace(plan=plan)
    team = lab.Team.per_agent(make_base().adapter, ENV.agents)
    before = {agent: weights(team[agent]) for agent in ENV.agents}
    reports = list(lab.train(ENV, team, recipe, steps=3, seed=0, **SMALL))
    stats = [report.stats for report in reports]
    assert max(one["mismatch"].max() for one in stats) < CLOSE
    for agent in ENV.agents:
        learned = any((one[one["agent"] == agent]["grad_norm"] > 0).any() for one in stats)
        assert learned != same(before[agent], weights(team[agent]))
    assert any((one["grad_norm"] > 0).any() for one in stats)


def test_full_weights_and_adapters_of_a_four_bit_base_train_and_agree():
    policy = lab.load_policy(ENV.pocket, backend="unsloth")
    [*reports] = lab.train(ENV, lab.Team.shared(policy, ENV.agents), "at_grpo", steps=2, **SMALL)
    assert reports[-1].stats["mismatch"].max() < CLOSE
    assert len(policy.parameters) == len(list(policy.model.parameters()))
    base = make_base(load_in_4bit=True)
    team = lab.Team.per_agent(base.adapter, ENV.agents)
    kinds = {type(module.base_layer).__name__ for module in base.shared.net.modules() if hasattr(module, "lora_A")}
    assert kinds == {"Linear4bit"}
    [*reports] = lab.train(ENV, team, "at_grpo", steps=2, **SMALL)
    assert max(report.stats["mismatch"].max() for report in reports) < CLOSE
    assert (reports[0].stats["grad_norm"] > 0).any()


def test_the_same_adapters_start_and_say_the_same_as_under_torch():
    ours, plain = (lab.load_base(ENV.pocket, backend=b, adapters=2, rank=4, seed=7) for b in ("unsloth", "torch"))
    for agent in ENV.agents:
        here, there = ours.adapter(agent), plain.adapter(agent)
        assert list(here.parameters) == list(there.parameters)
        assert all(torch.equal(p, there.parameters[name]) for name, p in here.parameters.items())
        asked = requests(here)
        assert [c.ids for c in here.sample(asked)] == [c.ids for c in there.sample(asked)]


def test_adapters_do_not_leak_into_each_other(base):
    """`set_adapter` flips requires_grad, and a batch of one adapter is sampled while another's gradient waits."""
    first, second = (base.adapter(agent) for agent in ENV.agents)
    own, other = weights(first), weights(second)
    second.forward_backward(samples(second), lab.reinforce())
    waiting = {name: gradient.clone() for name, gradient in second.gradients()}
    first.forward_backward(samples(first), lab.reinforce())
    samples(second)
    first.optim_step(max_norm=1.0)
    assert all(not torch.equal(p, own[name]) for name, p in first.parameters.items())
    assert same(weights(second), other) and same(dict(second.gradients()), waiting)


def test_a_run_is_restored_and_resumed(tmp_path):
    settings = SMALL | {"save_every": 1, "seed": 4}

    def play(run, steps):
        team = lab.Team.per_agent(make_base().adapter, ENV.agents)
        list(lab.train(ENV, team, "at_grpo", steps=steps, run=tmp_path / run, **settings))
        return team

    whole, part = play("whole", 3), play("parts", 2)
    restored = lab.load_run(tmp_path / "parts").team()
    for agent in ENV.agents:
        assert type(restored[agent].shared).backend == "unsloth"
        sampled = samples(part[agent])
        assert torch.equal(restored[agent].logprobs(sampled)[0], part[agent].logprobs(sampled)[0])
    assert restored[ENV.agents[0]].shared is restored[ENV.agents[1]].shared
    resumed = play("parts", 3)
    for agent in ENV.agents:
        assert all(torch.equal(p, whole[agent].parameters[n]) for n, p in resumed[agent].parameters.items())


def test_what_cannot_be_is_refused():
    def refused(match, **options):
        with pytest.raises(PolicyError, match=match):
            lab.load_policy(ENV.pocket, backend="unsloth", **options)

    refused("no tree mask", packing="packed")
    refused("add lora=", load_in_4bit=True)
    refused("UNSLOTH_FORCE_CPU=1", device="cuda")
    policy = lab.load_policy(ENV.pocket, backend="unsloth", lora=4, max_seq_length=40)
    with pytest.raises(PolicyError, match="exceed the context of 40 tokens"):
        policy.sample([Request(tuple(range(30)), 20, 1.0, 0)])


RESTORED = """
import sys
class Watcher:
    asked = []
    def find_spec(self, name, *_):
        if name in ("unsloth", "transformers", "trl", "peft"):
            self.asked.append(name)
sys.meta_path.insert(0, Watcher())
sys.modules["bitsandbytes"] = None  # as if it were not installed
import mas_lab as lab
from mas_lab.backends.loading import restore_policies
restore_policies({"policy": sys.argv[1]})
try:
    lab.load_policy("plan_path", backend="unsloth", lora=2, load_in_4bit=True)
except lab.PolicyError as error:
    print(error)
print(*Watcher.asked[:2])
"""


def test_unsloth_is_imported_first_and_a_base_that_was_not_quantized_is_an_error(tmp_path):
    lab.load_policy("plan_path", backend="unsloth", lora=2).save(tmp_path)
    done = subprocess.run([sys.executable, "-c", RESTORED, str(tmp_path)], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    *words, last = done.stdout.splitlines()
    first, second = last.split()
    assert first == "unsloth" and second != "unsloth"
    assert "without quantizing it" in words[-1]


def test_the_notebook_runs_on_it():
    pytest.importorskip("ipykernel")
    from notebooks.test_notebooks import printed, run_short

    said = printed(run_short("10_one_gpu_unsloth"))
    assert "BACKEND='unsloth'" in said and re.search(r"float32: [\d.]+   4 bits: [\d.]+", said)


def test_smollm2_plays_in_words_and_learns():
    learns("unsloth")
