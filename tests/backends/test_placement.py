"""Placement by hand: sizes add up, devices fill up, what cannot fit is refused with what would."""

import pytest
from transformers import Qwen3Config

import mas_lab as lab
from mas_lab import ModelSpec, Placement, PlacementError
from mas_lab.backends.memory import GIB, known_shapes
from mas_lab.backends.placement import CONTEXT

SMALL = {"sample_tokens": 16384, "train_tokens": 2048}
T4 = 14.56
LINEAR = 28 * (2 * 2048 * 2048 + 2 * 2048 * 1024 + 3 * 2048 * 6144)  # Qwen3-1.7B: q and o, k and v, the MLP
REST = 151936 * 2048 + 28 * (2 * 2048 + 2 * 128) + 2048
PER_RANK = 28 * (2 * (2048 + 2048) + 2 * (2048 + 1024) + 3 * (2048 + 6144))


def t4s(n: int) -> dict[str, float]:
    return {f"cuda:{i}": T4 for i in range(n)}


def test_the_arithmetic_of_an_adapter_over_a_16_bit_base():
    plan = Placement({"solver": "Qwen3-1.7B"}, t4s(1), lora=16, **SMALL)
    row = plan.policies_table.loc["solver"]
    trained = 16 * PER_RANK
    assert row["weights"] == pytest.approx((2 * (LINEAR + REST) + 4 * trained) / GIB)
    assert row["weights"] == pytest.approx(3.27, abs=0.01)
    assert row["gradients, optimizer"] == pytest.approx(12 * trained / GIB)
    assert row["keys, values"] == pytest.approx(16384 * 28 * 2 * 8 * 128 * 2 / GIB)
    larger = max(row["keys, values"], row["activations"])  # they take turns
    assert row["in all"] == pytest.approx(row["weights"] + row["gradients, optimizer"] + larger)
    device = plan.devices_table.loc["cuda:0"]
    assert device["used"] == pytest.approx(row["in all"])
    assert device["left"] == pytest.approx(T4 - CONTEXT - row["in all"])


def test_all_weights_take_16_bytes_each():
    row = Placement({"all": "Qwen3-1.7B"}, {"cuda:0": 80.0}, **SMALL).policies_table.loc["all"]
    assert row["weights"] + row["gradients, optimizer"] == pytest.approx(16 * (LINEAR + REST) / GIB)
    assert row["weights"] + row["gradients, optimizer"] == pytest.approx(25.64, abs=0.01)


def test_two_t4s_are_one_agent_each():
    """The larger one first, each where most room is left."""
    plan = Placement({"verifier": "Qwen3-0.6B", "solver": "Qwen3-1.7B"}, t4s(2), lora=16, **SMALL)
    assert plan.policies_table["trains on"].to_dict() == {"verifier": "cuda:1", "solver": "cuda:0"}
    assert plan.options("solver") == {"backend": "torch", "device": "cuda:0", "lora": 16, **SMALL}
    assert plan.options("verifier")["device"] == "cuda:1"


def test_what_is_asked_for_is_kept():
    wishes = {
        "solver": ModelSpec("Qwen3-0.6B", lora=8, device="cuda:1"),
        "verifier": ModelSpec("Qwen3-0.6B", lora=4, **SMALL),
    }
    assert Placement(wishes, t4s(2)).policies_table["trains on"].to_dict() == {"solver": "cuda:1", "verifier": "cuda:0"}
    with pytest.raises(PlacementError, match=r"'solver' is wanted on cuda:7; the devices are cuda:0, cuda:1"):
        Placement({"solver": ModelSpec("Qwen3-0.6B", device="cuda:7")}, t4s(2))


def test_a_base_with_three_adapters_is_one_model():
    three, one = (Placement({"team": ModelSpec("Qwen3-1.7B", lora=16, adapters=n, **SMALL)}, t4s(1)) for n in (3, 1))
    grown = three.policies_table.loc["team", "in all"] - one.policies_table.loc["team", "in all"]
    assert grown == pytest.approx(2 * 16 * 16 * PER_RANK / GIB)
    told = three.options("team")
    assert (told["adapters"], told["rank"]) == (3, 16) and "lora" not in told


def test_what_cannot_fit_is_refused_with_what_would():
    wish = ModelSpec("Qwen3-1.7B", **SMALL)
    with pytest.raises(PlacementError) as refused:
        Placement({"solver": wish}, t4s(1))
    needs = Placement({"solver": wish}, {"cuda:0": 80.0}).policies_table["in all"].item()
    said = f"'solver' (Qwen3-1.7B, all weights) needs {needs:.1f} GiB on cuda:0, where 13.8 of 14.6 GiB are left. "
    assert said in str(refused.value)
    fits = Placement({"solver": ModelSpec("Qwen3-1.7B", lora=16, **SMALL)}, t4s(1)).policies_table["in all"].item()
    assert f"lora=16: {fits:.1f} GiB" in str(refused.value) and "bits=4, backend='unsloth'" in str(refused.value)


def test_what_it_suggests_does_fit():
    with pytest.raises(PlacementError, match=r"sample_tokens and train_tokens of 2048: \d"):
        Placement({"solver": ModelSpec("Qwen3-1.7B", lora=16, sample_tokens=2**20)}, t4s(1))
    assert Placement({"solver": ModelSpec("Qwen3-1.7B", lora=16, sample_tokens=2048, train_tokens=2048)}, t4s(1))


def test_a_refusal_says_who_took_the_room_and_when_nothing_helps():
    wishes = {name: ModelSpec("Qwen3-1.7B", lora=16) for name in ("solver", "verifier")}
    with pytest.raises(PlacementError, match=r"'verifier' .* of 14\.6 GiB are left, 12\.\d of them taken by solver"):
        Placement(wishes, t4s(1))
    huge = Qwen3Config(**known_shapes()["Qwen3-1.7B"].to_dict() | {"num_hidden_layers": 280, "layer_types": None})
    with pytest.raises(PlacementError, match="No setting makes it fit; take a smaller model"):
        Placement({"solver": huge}, t4s(1))


def test_frozen_weights_have_no_gradient():
    row = Placement({"judge": ModelSpec("Qwen3-0.6B", frozen=True)}, t4s(1)).policies_table.loc["judge"]
    assert row["gradients, optimizer"] == row["activations"] == 0
    assert (row["learns"], row["trains on"], row["samples on"]) == ("nothing", "nowhere", "cuda:0")


def test_a_process_per_device_holds_every_policy():
    devices = {f"cuda:{i}": 79.1 for i in range(8)}
    plan = Placement({"solver": "Qwen3-1.7B", "verifier": "Qwen3-0.6B"}, devices, every=True)
    table = plan.policies_table
    assert set(table["trains on"]) == {"each of 8"}
    assert plan.devices_table["used"].tolist() == pytest.approx([table["in all"].sum()] * 8)
    assert "device" not in plan.options("solver")


def test_vllm_on_the_same_gpu_keeps_a_copy_unless_it_sleeps():
    awake, asleep = (
        Placement({"a": ModelSpec("Qwen3-1.7B", backend="vllm", sleep=sleep, **SMALL)}, {"cuda:0": 80.0})
        for sleep in (False, True)
    )
    row = awake.policies_table.loc["a"]
    assert row["vLLM's copy"] == pytest.approx(2 * (LINEAR + REST) / GIB)
    engine = row["vLLM's copy"] + row["keys, values"]
    kept = row["weights"] + row["gradients, optimizer"]
    assert row["in all"] == pytest.approx(kept + row["activations"] + engine)
    assert asleep.policies_table.loc["a", "in all"] == pytest.approx(kept + max(row["activations"], engine))
    share = awake.options("a")["memory"]
    assert engine + 1 <= share * 80 < engine + 1 + 0.81
    assert asleep.options("a")["sleep"] is True and "where" not in asleep.options("a")


def test_vllm_on_other_gpus_is_a_server_there():
    wish = ModelSpec("Qwen3-1.7B", backend="vllm", device="cuda:0", samples_on=("cuda:1", "cuda:2"), **SMALL)
    devices = {f"cuda:{i}": 40.0 for i in range(3)}
    plan = Placement({"a": wish}, devices)
    used, row = plan.devices_table["used"], plan.policies_table.loc["a"]
    assert used["cuda:1"] == used["cuda:2"] == pytest.approx((row["vLLM's copy"] + row["keys, values"]) / 2)
    assert used["cuda:0"] == pytest.approx(row["weights"] + row["gradients, optimizer"] + row["activations"])
    told = plan.options("a")
    assert (told["where"], told["gpus"], told["tensor_parallel"], told["device"]) == ("server", "1,2", 2, "cuda:0")
    with pytest.raises(PlacementError, match="with every=True each process samples where it trains"):
        Placement({"a": wish}, devices, every=True)


def test_options_are_those_of_the_back_ends():
    from mas_lab.backends.vllm.model import VllmOptions

    devices = {f"cuda:{i}": 40.0 for i in range(2)}
    quantized = ModelSpec("Qwen3-0.6B", lora=8, bits=4, backend="unsloth")
    served = ModelSpec("Qwen3-0.6B", lora=8, backend="vllm", device="cuda:0", samples_on="cuda:1")
    plan = Placement({"u": quantized, "v": served}, devices)
    told = {key: value for key, value in plan.options("v").items() if key not in ("backend", "lora")}
    assert VllmOptions.of(told).gpus == "1"
    assert plan.options("u")["load_in_4bit"] is True


def test_a_pocket_model_here_and_now():
    """On this machine, with what the constructor is told."""
    env = lab.make_env("plan_path")
    plan = Placement(dict.fromkeys(env.agents, env.pocket), lora=4)
    team = lab.Team({agent: lab.load_policy(env.pocket, **plan.options(agent)) for agent in plan})
    for agent, policy in team.items():
        assert str(policy.shared.device) == plan.options(agent)["device"] in plan.devices
        trained = sum(parameter.numel() for parameter in policy.parameters.values())
        assert plan.policies_table.loc[agent, "gradients, optimizer"] == pytest.approx(12 * trained / GIB)


def test_it_shows_itself():
    plan = Placement({"<solver>": "Qwen3-0.6B"}, {"cuda:0": 40.0})
    assert "all weights" in repr(plan) and "capacity" in repr(plan) and repr(plan).endswith("(GiB)")
    page = plan._repr_html_()
    assert page.count("<table") == 2 and "&lt;solver&gt;" in page and "<solver>" not in page
