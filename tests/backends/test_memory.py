"""Memory by hand: Qwen3-0.6B has 28 layers, 16 query and 8 key heads of 128, 1024 and 3072 wide, 151,936 tokens."""

import pytest
from transformers import GPT2Config, Qwen3Config

from mas_lab.backends.memory import GIB, NF4, activations, budget, known_shapes, memory, shape

QWEN3_06B = known_shapes()["Qwen3-0.6B"]
LINEAR = 28 * (1024 * 2048 + 2 * 1024 * 1024 + 2048 * 1024 + 3 * 1024 * 3072)
REST = 151936 * 1024 + 28 * (2 * 1024 + 2 * 128) + 1024
PER_RANK = 28 * (1024 + 2048 + 2 * (1024 + 1024) + 2048 + 1024 + 2 * (1024 + 3072) + 3072 + 1024)


def test_weights_are_counted():
    counts = shape(QWEN3_06B)
    assert (counts.linear, counts.rest, counts.per_rank) == (LINEAR, REST, PER_RANK)
    assert LINEAR + REST == 596_049_920
    untied = Qwen3Config.from_dict(QWEN3_06B.to_dict() | {"tie_word_embeddings": False})
    assert shape(untied).rest == REST + 151936 * 1024


def test_adapters_over_a_frozen_base():
    for bits, per_linear in ((16, 2), (4, NF4)):
        found = memory(QWEN3_06B, bits=bits, adapters=3, rank=16, sample_tokens=10_000)
        assert found.weights == pytest.approx(per_linear * LINEAR + 2 * REST)
        trained = 3 * 16 * PER_RANK
        assert (found.adapters, found.gradients, found.optimizer) == (4 * trained, 4 * trained, 8 * trained)
        assert found.kv_cache == 10_000 * 2 * 28 * 8 * 128 * 2
    assert 4 * LINEAR * NF4 < 0.52 * 4 * LINEAR


def test_all_weights_are_trained_in_float32():
    found = memory(QWEN3_06B)
    assert (found.weights, found.gradients, found.optimizer) == tuple(n * (LINEAR + REST) for n in (4, 4, 8))
    assert found.adapters == 0
    assert found.peak == 16 * (LINEAR + REST) + max(found.kv_cache, found.activations)
    assert found.gib()["peak"] == found.peak / GIB and found.gib()["optimizer"] == found.optimizer / GIB


def test_activations_grow_with_tokens_and_logits_are_bounded():
    per_token = 28 * 2 * (4 * 1024 + 2 * 128 * 24 + 4 * 3072)
    assert activations(QWEN3_06B, 100) == 100 * (per_token + 8 * 151936)
    assert activations(QWEN3_06B, 4096) == 4096 * per_token + 8 * 2**25


def test_the_budget_table():
    table = budget(agents=3, rank=8, sample_tokens=20_000)
    assert len(table) == 6 and list(table.columns)[-1] == "peak"
    found = memory(known_shapes()["Qwen3-1.7B"], bits=4, adapters=3, rank=8, sample_tokens=20_000)
    assert table.loc[("Qwen3-1.7B", "4-bit + LoRA")].to_dict() == found.gib()
    peak = table["peak"].unstack("trained")
    assert (peak["4-bit + LoRA"] < peak["16-bit + LoRA"]).all() and (peak["16-bit + LoRA"] < peak["all weights"]).all()
    assert shape(known_shapes()["Qwen3-1.7B"]).linear + shape(known_shapes()["Qwen3-1.7B"]).rest == 1_720_574_976


def test_what_has_no_meaning_is_refused():
    with pytest.raises(ValueError, match="4 under adapters"):
        memory(QWEN3_06B, bits=4)
    with pytest.raises(ValueError, match="bits=8"):
        memory(QWEN3_06B, bits=8, adapters=1)
    with pytest.raises(ValueError, match="gpt2"):
        memory(GPT2Config())
