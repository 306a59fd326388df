"""Placement by hand: sizes add up, devices fill up, what cannot fit is refused with what needs less.

Qwen3-0.6B has 28 layers, 16 query and 8 key heads of 128, widths of 1024 and 3072, and 151,936 tokens.
"""

import pytest
from transformers import GPT2Config, Qwen3Config

import mas_lab as lab
from mas_lab import ModelSpec, Placement
from mas_lab.backends.devices import GIB
from mas_lab.backends.placement import CONTEXT, NF4, PlacementError, count_weights, known_shapes
from mas_lab.backends.torch.source import model_config
from mas_lab.paths import data_dir

SMALL = {"sample_tokens": 16384, "train_tokens": 2048}
T4 = 14.56
ONE, TWO = {"cuda:0": T4}, {"cuda:0": T4, "cuda:1": T4}
QWEN3_06B = known_shapes()["Qwen3-0.6B"]


def counts(hidden: int, wide: int) -> tuple[int, int, int]:
    """Return the numbers of linear and of other weights, and those of an adapter of rank 1."""
    linear = 28 * (2 * hidden * 2048 + 2 * hidden * 1024 + 3 * hidden * wide)  # q and o, k and v, the MLP
    rest = 151936 * hidden + 28 * (2 * hidden + 2 * 128) + hidden
    return linear, rest, 28 * (2 * (hidden + 2048) + 2 * (hidden + 1024) + 3 * (hidden + wide))


LINEAR, REST, PER_RANK = counts(2048, 6144)


def test_weights_are_counted_and_adapters_stand_over_a_frozen_base():
    assert count_weights(QWEN3_06B) == counts(1024, 3072) and sum(counts(1024, 3072)[:2]) == 596_049_920
    assert count_weights(known_shapes()["Qwen3-1.7B"]) == (LINEAR, REST, PER_RANK) and LINEAR + REST == 1_720_574_976
    untied = Qwen3Config.from_dict(QWEN3_06B.to_dict() | {"tie_word_embeddings": False})
    assert count_weights(untied)[1] == count_weights(QWEN3_06B)[1] + 151936 * 1024
    linear, rest, per_rank = counts(1024, 3072)
    for bits, per_linear in ((16, 2), (4, NF4)):
        found = ModelSpec(QWEN3_06B, bits=bits, adapters=3, lora=16, sample_tokens=10_000).memory()
        assert found.weights == pytest.approx(per_linear * linear + 2 * rest)
        trained = 3 * 16 * per_rank
        assert (found.adapters, found.gradients, found.optimizer) == (4 * trained, 4 * trained, 8 * trained)
        assert found.sampling == 10_000 * 2 * 28 * 8 * 128 * 2 + (24 + 2 * 4) * 2**25
    assert 0.5 < NF4 < 0.52


def test_a_frozen_base_has_the_type_in_which_the_device_computes(monkeypatch):
    small = ModelSpec("plan_path", lora=2)
    on_gpu, on_cpu = (Placement({"a": small}, {device: 16.0})["a"].memory().weights for device in ("cuda:0", "cpu"))
    assert on_cpu == 2 * on_gpu == 4 * sum(count_weights(model_config(data_dir() / "pocket" / "plan_path"))[:2])
    for speedup, size in ((1.0, 4), (9.0, 2)):
        monkeypatch.setattr("mas_lab.backends.torch.threads._speedup", speedup)
        plan = Placement({"a": "Qwen3-1.7B"}, {"cpu": 64.0}, lora=2)
        assert plan["a"].memory().weights == size * (LINEAR + REST)


def test_activations_grow_with_tokens_logits_are_bounded_and_unknown_sizes_are_refused():
    per_token = 28 * (2 * (4 * 1024 + 2 * 128 * 24 + 4 * 3072) + 4 * (2 * 1024 + 128 * 24))
    few, many = (ModelSpec(QWEN3_06B, lora=16, train_tokens=tokens).memory().activations for tokens in (100, 4096))
    assert (few, many) == (100 * (per_token + 12 * 151936), 4096 * per_token + 12 * 2**25)
    whole = ModelSpec(QWEN3_06B, train_tokens=100).memory().activations
    assert whole == 100 * per_token + 2 * counts(1024, 3072)[0] + 8 * 151936 * 1024  # the head's gradient is the peak
    again = ModelSpec(QWEN3_06B, lora=16, train_tokens=4096, checkpointing=True).memory().activations
    assert again == 4096 * 28 * 2 * 1024 + max(12 * 2**25, 4096 * per_token // 28)
    with pytest.raises(ValueError, match="gpt2"):
        ModelSpec(GPT2Config()).memory()


def test_the_largest_goes_first_to_most_room_or_where_it_is_wanted_and_a_base_of_three_adapters_is_one_model():
    smaller = ModelSpec("Qwen3-0.6B", lora=16, checkpointing=True, **SMALL)
    plan = Placement({"verifier": smaller, "solver": "Qwen3-1.7B"}, TWO, lora=16, **SMALL)
    assert plan.policies_table["trains on"].to_dict() == {"verifier": "cuda:1", "solver": "cuda:0"}
    assert plan.options("solver") == {"backend": "torch", "device": "cuda:0", "lora": 16, **SMALL}
    specs = {"solver": ModelSpec("Qwen3-0.6B", lora=8, device="cuda:1"), "verifier": ModelSpec("Qwen3-0.6B", lora=4)}
    assert Placement(specs, TWO).policies_table["trains on"].to_dict() == {"solver": "cuda:1", "verifier": "cuda:0"}
    three, one = (Placement({"team": ModelSpec("Qwen3-1.7B", lora=16, adapters=n, **SMALL)}, ONE) for n in (3, 1))
    grown = three.policies_table.loc["team", "in all"] - one.policies_table.loc["team", "in all"]
    assert grown == pytest.approx(2 * 16 * 16 * PER_RANK / GIB)
    told = three.options("team")
    assert (told["adapters"], told["rank"]) == (3, 16) and "lora" not in told


def test_a_refusal_names_the_need_the_room_and_what_needs_less():
    needs = Placement({"solver": ModelSpec("Qwen3-1.7B", **SMALL)}, {"cuda:0": 80.0}).policies_table["in all"].item()
    said = (
        rf"'solver' \(Qwen3-1.7B, all weights\) needs {needs:.1f} GiB on cuda:0, where 13.8 of 14.6 GiB are left\. "
        "Less memory is needed with lora=, bits=4 under backend='unsloth', or fewer sample_tokens"
    )
    with pytest.raises(PlacementError, match=said):
        Placement({"solver": "Qwen3-1.7B"}, ONE, **SMALL)
    two = dict.fromkeys(("solver", "verifier"), "Qwen3-1.7B")
    with pytest.raises(PlacementError, match=r"'verifier' .* of 14\.6 GiB are left, 1\d\.\d of them taken by solver"):
        Placement(two, ONE, lora=16)


def test_vllm_on_the_same_gpu_keeps_a_copy_unless_it_sleeps():
    awake, asleep = (
        Placement({"a": ModelSpec("Qwen3-1.7B", backend="vllm", sleep=sleep, **SMALL)}, {"cuda:0": 80.0})
        for sleep in (False, True)
    )
    row = awake.policies_table.loc["a"]
    engine = row["vLLM"]
    assert engine == pytest.approx(2 * (LINEAR + REST) / GIB + row["sampling"])
    kept = row["weights"] + row["gradients"] + row["optimizer"]
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
    assert plan.devices_table["left"].tolist() == pytest.approx((40 - CONTEXT - used).tolist())
    assert plan._repr_html_().count("<table") == 2
    assert used["cuda:1"] == used["cuda:2"] == pytest.approx(row["vLLM"] / 2)
    assert used["cuda:0"] == pytest.approx(row[["weights", "gradients", "optimizer", "activations"]].sum())
    full = Placement({"a": wish}, devices | {"cuda:1": used["cuda:1"] + 0.8})  # 0.75 GiB are the context's
    assert full.options("a")["memory"] <= 1 - 0.75 / full.devices["cuda:1"]
    told = plan.options("a")
    assert (told["where"], told["gpus"], told["tensor_parallel"], told["device"]) == ("server", "1,2", 2, "cuda:0")


def test_every_process_holds_every_policy_and_a_pocket_model_is_placed_on_this_machine():
    plan = Placement({"solver": "Qwen3-1.7B", "verifier": "Qwen3-0.6B"}, dict.fromkeys("abcdefgh", 79.1), every=True)
    table = plan.policies_table
    assert set(table["trains on"]) == {"each of 8"} and "device" not in plan.options("solver")
    assert plan.devices_table["used"].tolist() == pytest.approx([table["in all"].sum()] * 8)
    env = lab.make_env("plan_path")
    plan = Placement(dict.fromkeys(env.agents, env.pocket), lora=4)
    team = lab.Team({agent: lab.load_policy(env.pocket, **plan.options(agent)) for agent in plan})
    for agent, policy in team.items():
        assert str(policy.shared.device) == plan.options(agent)["device"] in plan.devices
        trained = sum(parameter.numel() for parameter in policy.parameters.values())
        assert plan.policies_table.loc[agent, "optimizer"] == pytest.approx(8 * trained / GIB)
