"""A model in memory: gradient checkpointing gives the same gradient from fewer stored activations, and NaN and infinite
weights stop what is made of them where they are first met, and are never saved."""

import numpy as np
import pytest
import small
import torch
from backends.drawn import same, weights
from safetensors.torch import load_file, save_file

import mas_lab as lab
from mas_lab.policy import NotFiniteError, Request, Sample

LOSS = lab.clipped(0.2)


def learned(model, loss=LOSS, **options):
    """Return the gradient of one batch, the bytes that its passes kept, and the policy."""
    policy, kept = lab.load_policy(model, **options), []
    for parameter in policy.parameters.values():
        parameter.data += 0.01  # else the second factor of an adapter is 0
    rng = np.random.default_rng(0)
    prompts = [tuple(rng.integers(3, 12, 6).tolist()) for _ in range(2)]
    samples = [Sample(prompt, tuple(rng.integers(3, 12, 5).tolist()), (-1.0,) * 5, 1.0, float(advantage), 0.25)
               for prompt in prompts for advantage in (1, -1)]  # fmt: skip
    pack = lambda tensor: kept.append(tensor.nbytes) or tensor  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        policy.forward_backward(samples, loss)
    return torch.cat([g.flatten() for _, g in policy.gradients()]), sum(kept), policy


@pytest.mark.parametrize("options", [{}, {"packing": "padded"}, {"plain": True}, {"lora": 4}], ids=str)
def test_the_gradient_is_the_same_and_less_is_kept(models, options):
    model = models / "a"
    (plain, all_of_it, _), (again, less, policy) = (learned(model, checkpointing=on, **options) for on in (False, True))
    torch.testing.assert_close(again, plain, rtol=1e-5, atol=1e-7)
    assert less < 0.7 * all_of_it
    assert not any(layer.training for layer in policy.shared._checkpointed)


def test_an_adapter_gets_the_gradient_that_the_code_of_peft_gives(models):
    expected, *found = (learned(models / "a", lab.reinforce(), lora=4, plain=plain, dtype=dtype)[0]
                        for plain, dtype in ((True, "float32"), (False, "float32"), (False, "bfloat16")))  # fmt: skip
    for gradient, near in zip(found, (1e-5, 0.05), strict=True):
        assert (gradient - expected).norm() < near * expected.norm()


def ruin(policy, value=np.nan) -> str:
    """The name of the parameter whose first number is now `value`."""
    name, parameter = list(policy.parameters.items())[-1]
    with torch.no_grad():
        parameter.view(-1)[0] = value
    return name


def asked(temperature=1.0):
    return [Request((5, 6), 4, temperature, seed) for seed in range(3)]


@pytest.mark.parametrize(
    ("options", "temperature", "value"),
    [({}, 1.0, np.nan), ({"packing": "padded"}, 1.0, np.inf), ({"plain": True}, 0.0, np.nan)],
)
def test_nothing_is_sampled_from_weights_that_are_no_numbers(models, options, temperature, value):
    policy = lab.load_policy(models / "a", **options)
    assert len(policy.sample(asked(temperature))) == 3
    with pytest.raises(NotFiniteError, match=r"though its weights are: .* or the temperature is too low"):
        policy.sample(asked(temperature=1e-42))
    name = ruin(policy, value)
    with pytest.raises(NotFiniteError, match=f"policy 'a': its weights are not finite where it samples.*{name!r}"):
        policy.sample(asked(temperature))


def test_of_two_adapters_the_one_that_is_no_number_is_named(models):
    team = small.make_team("lora", models)
    ruin(team["doer"])
    for agent in team:
        team["asker"].engine.submit(team[agent], asked())
    with pytest.raises(NotFiniteError, match="policy 'doer': its weights"):
        team["asker"].engine.ready()
    assert len(team["asker"].sample(asked())) == 3


@pytest.mark.parametrize("kind", ["shared", "lora"])
def test_a_file_of_weights_that_are_no_numbers_is_refused_and_changes_nothing(models, tmp_path, kind):
    policy = small.make_team(kind, models)["asker"]
    policy.save(tmp_path)
    [file] = tmp_path.glob("*.safetensors")
    kept = load_file(file)
    save_file({name: tensor * float("nan") for name, tensor in kept.items()}, file, metadata={"format": "pt"})
    before = weights(policy)
    with pytest.raises(NotFiniteError, match=f"its weights are not finite in {tmp_path}"):
        policy.load(tmp_path)
    assert same(before, weights(policy))
    if kind == "shared":
        with pytest.raises(NotFiniteError, match=f"not finite in {tmp_path}"):
            lab.load_policy(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "save_every", "left"), [("rate", 1, 2), ("hand", 100, 0)])
def test_training_stops_at_weights_that_are_no_numbers_and_goes_on_from_the_last_good_ones(
    models, tmp_path, how, save_every, left
):
    team, run, good = small.make_team("shared", models), tmp_path / "run", {0: None}
    good[0] = weights(team["asker"])
    words = "policy 'a': its weights are not finite after a step at" if how == "rate" else "where it samples"
    with pytest.raises((NotFiniteError, lab.RolloutError), match=words) as stopped:
        settings = small.SETTINGS | {"save_every": save_every}
        for report in lab.train(small.Relay(), team, small.RECIPE, 5, run=run, **settings):
            good[report.step + 1] = weights(team["asker"])
            if report.step == 1:
                team["asker"].lr, _ = (1e35, None) if how == "rate" else (1e-2, ruin(team["asker"]))
    assert not getattr(stopped.value, "__notes__", [])
    assert max(good) == 2
    kept = lab.load_run(run)
    assert kept.checkpoint().step == left and same(good[left], weights(kept.team()["asker"]))
    plain, again = ([list(lab.train(small.Relay(), small.make_team("shared", models), small.RECIPE, 4, run=where,
                                    **settings))] for where in (tmp_path / "plain", run))  # fmt: skip
    assert plain and again and small.bits(run) == small.bits(tmp_path / "plain")
