"""Each way in the table of architectures computes what plain passes of each row compute, in rows longer than windows.

The right tokens, log-probabilities and gradients come from transformers: one row, no cache, no padding, no tree. The
table in docs/gpus.md has a row for each of these architectures.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers as hf
from backends.conftest import SHAPE, _config, build
from backends.drawn import gap, old_logprobs, requests
from transformers import logging

from mas_lab.backends.loading import load_base, load_policy
from mas_lab.backends.torch.architectures import PLAIN, PROVED, ROTATIONS, TABLE, Ways, settings_of
from mas_lab.backends.torch.fast.tree_attention import attending
from mas_lab.backends.torch.source import rotations_of
from mas_lab.losses import reinforce
from mas_lab.policy import PolicyError, Sample

LLAMA = SHAPE | {"intermediate_size": 48, "num_key_value_heads": 2, "max_position_embeddings": 128}
FOUR = LLAMA | {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
WINDOW = {"sliding_window": 6, "use_sliding_window": True}
TOWER = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
ROPE = {"rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
CONFIGS = {
    "window": lambda: hf.MistralConfig(**LLAMA, head_dim=8, sliding_window=19),  # in every layer, named in the config
    "window_by_layer": lambda: hf.Gemma3TextConfig(**FOUR, head_dim=8, sliding_window=6, query_pre_attn_scalar=8),
    "heads_by_layer": lambda: hf.Gemma4TextConfig(
        **FOUR, head_dim=8, global_head_dim=16, sliding_window=4, vocab_size_per_layer_input=64,
        hidden_size_per_layer_input=8),
    "scaled_positions": lambda: hf.Ministral3Config(**LLAMA, head_dim=8, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 8,
        "llama_4_scaling_beta": 0.5}),
    "experts": lambda: hf.Qwen3MoeConfig(**LLAMA, **WINDOW, head_dim=8, num_experts=4, **EXPERTS),
    "experts_in_two_dimensions": lambda: hf.MixtralConfig(
        **LLAMA, num_local_experts=4, num_experts_per_tok=2, sliding_window=6),
    "shared_expert": lambda: hf.Qwen2MoeConfig(
        **LLAMA, num_experts=4, shared_expert_intermediate_size=16, **EXPERTS),
    "scaled_logits": lambda: hf.GraniteMoeConfig(
        **LLAMA, num_local_experts=4, num_experts_per_tok=2, logits_scaling=3.0),
    "flat_layers": lambda: hf.OPTConfig(
        **SHAPE, ffn_dim=48, max_position_embeddings=128, word_embed_proj_dim=32),
    "llama": lambda: hf.LlamaConfig(**LLAMA),
    "linear": lambda: hf.LlamaConfig(**LLAMA, rope_parameters=ROPE | {"rope_type": "linear"}),
    "llama3": lambda: hf.LlamaConfig(**LLAMA, rope_parameters=ROPE | {
        "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
    "qwen2": lambda: hf.Qwen2Config(**LLAMA, **WINDOW, max_window_layers=1),
    "qwen3": lambda: hf.Qwen3Config(**LLAMA, **WINDOW, head_dim=8, max_window_layers=1),
    "gemma2": lambda: hf.Gemma2Config(
        **LLAMA, head_dim=8, sliding_window=6, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
        query_pre_attn_scalar=8),
    "gemma3_with_images": lambda: hf.Gemma3Config(
        text_config=CONFIGS["window_by_layer"]().to_dict(), vision_config=TOWER | {"image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4, image_token_index=63, boi_token_index=62, eoi_token_index=61),
    "ministral": lambda: hf.MinistralConfig(**FOUR, head_dim=8, sliding_window=7),
    "phi3": lambda: hf.Phi3Config(
        **LLAMA, sliding_window=7, original_max_position_embeddings=12,
        rope_scaling=LONGROPE | {"original_max_position_embeddings": 12, "factor": 4.0}),
    "granite": lambda: hf.GraniteConfig(
        **LLAMA, embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.4, attention_multiplier=0.2),
    "smollm3": lambda: hf.SmolLM3Config(**FOUR, **WINDOW, no_rope_layers=[1, 1, 1, 0]),
    "olmo2": lambda: hf.Olmo2Config(**LLAMA),
    "cohere2": lambda: hf.Cohere2Config(**FOUR, head_dim=8, sliding_window=6, logit_scale=0.5),
    "starcoder2": lambda: hf.Starcoder2Config(**LLAMA, sliding_window=6),
    "gpt2": lambda: _config("gpt2"),
    "gpt_neox": lambda: hf.GPTNeoXConfig(**SHAPE, intermediate_size=48, max_position_embeddings=128),
    "olmo3": lambda: hf.Olmo3Config(**FOUR, sliding_window=6),
    "exaone4": lambda: hf.Exaone4Config(**FOUR, sliding_window=6),
    **{kind.model_type: partial(kind, **LLAMA) for kind in (hf.CohereConfig, hf.OlmoConfig, hf.PhiConfig)},
    **{kind.model_type: partial(kind, **LLAMA, head_dim=8) for kind in (
        hf.Ernie4_5Config, hf.GemmaConfig, hf.GlmConfig, hf.Glm4Config, hf.SeedOssConfig)},
}  # fmt: skip
PEOPLE_LOAD = ["llama", "qwen2", "qwen3", "gemma2", "window_by_layer", "gemma3_with_images", "window", "ministral",
               "phi3", "granite", "smollm3", "olmo2"]  # fmt: skip
PAGE = (Path(__file__).parents[3] / "docs" / "gpus.md").read_text(encoding="utf-8").split("<!-- architectures -->")[1]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Return a function from a name in `CONFIGS`, or a config, to the folder of a random model."""
    logging.set_verbosity_error()
    root, made = tmp_path_factory.mktemp("architectures"), {}

    def make(name):
        if str(name) not in made:
            made[str(name)] = build(root / str(len(made)), CONFIGS[name]() if isinstance(name, str) else name)
        return str(made[str(name)])

    return make


def samples_of(asked, answers):
    return [
        Sample(r.prompt_ids, c.ids, c.logprobs, r.temperature, 1.0, 0.1) for r, c in zip(asked, answers, strict=True)
    ]


def logits_of(net, request, ids) -> torch.Tensor:
    """Return the logits (T, V) that predict the tokens `ids` after the prompt: one row, no cache, no tree."""
    row = torch.tensor([[*request.prompt_ids, *ids]])
    return net(input_ids=row, use_cache=False).logits[0, len(request.prompt_ids) - 1 : -1]


def require_equal(policy, net, asked, answers) -> None:
    """Assert that tokens, log-probabilities and gradient of `policy` are those of plain passes of `net`."""
    policy.activate()
    greedy = requests(lengths=(11,), each=1, max_tokens=5, temperatures=(0.0,))
    for request, answer in zip(greedy, policy.sample(greedy), strict=True):
        assert logits_of(net, request, answer.ids).argmax(-1).tolist() == list(answer.ids)
    samples = samples_of(asked, answers)
    rows = zip(asked, answers, strict=True)
    known = [logits_of(net, r, c.ids).log_softmax(-1)[range(len(c.ids)), c.ids] for r, c in rows]
    known_N = torch.cat(known)
    assert (known_N - old_logprobs(samples)).abs().max() < 1e-4
    assert (known_N - policy.forward(samples).logprobs_N).abs().max() < 1e-4
    parameters = {name: p for name, p in net.named_parameters() if p.requires_grad}
    total = -sum(s.weight * s.advantage * logprobs.sum() for s, logprobs in zip(samples, known, strict=True))
    gradient = dict(zip(parameters, torch.autograd.grad(total, parameters.values(), allow_unused=True), strict=True))
    policy.set_gradients(None)
    policy.forward_backward(samples, reinforce())
    found = dict(policy.gradients())
    assert all(gradient[name] is None for name in gradient.keys() - found.keys())
    gap, norm = (sum(part.square().sum().item() for part in parts) ** 0.5 for parts in (
        [found[name] - gradient[name] for name in found], found.values()))  # fmt: skip
    assert gap < 1e-4 * norm


@pytest.mark.skipif(hf.__version__ < "5.20", reason="it names other settings")
def test_the_table_names_what_is_proved_here_and_the_page_says_so():
    proved: dict[str, set[str]] = {}
    for make in CONFIGS.values():
        proved.setdefault(make().model_type, set()).update(settings_of(make()))
    assert proved == TABLE
    rotations = {one.get("rope_type", "default") for make in CONFIGS.values() for one in rotations_of(make())}
    assert rotations == ROTATIONS
    rows = [f"| packed | {', '.join(f'`{kind}`' for kind in sorted(TABLE))} |", "| refused | `doge` |"]
    assert PAGE.strip().splitlines()[2:] == rows


@pytest.mark.parametrize("name", CONFIGS)
def test_all_weights(folder_of, name):
    for options in ({}, {"packing": "padded"}):
        policy = load_policy(folder_of(name), lr=1e-3, **options)
        fused = CONFIGS[name]().model_type in PROVED["fused"]
        assert policy.shared.ways == (Ways() if options else Ways(tree=True, fused=fused))
        how = policy.shared.net.config._attn_implementation
        net = hf.AutoModelForCausalLM.from_pretrained(folder_of(name), dtype="float32", attn_implementation=how).eval()
        net.get_input_embeddings().padding_idx = None
        asked = requests(lengths=(1, 11), each=2, max_tokens=5)
        require_equal(policy, net, asked, policy.sample(asked))
    row = {"input_ids": torch.tensor([asked[0].prompt_ids]), "use_cache": False}
    with torch.no_grad(), attending(net.config, "eager"):  # the attention of a forward-mode derivative
        eager = net(**row).logits
    with torch.no_grad():
        torch.testing.assert_close(eager, net(**row).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_two_adapters(folder_of, name):
    base = load_base(folder_of(name), adapters=2, rank=2, lr=1e-2)
    policies = [base.adapter(agent) for agent in ("solver", "verifier")]
    asked = requests(lengths=(1, 11), each=1, max_tokens=5)
    for policy in policies:  # an adapter starts as zero; a step makes it another model
        policy.forward_backward(samples_of(asked, policy.sample(asked)), reinforce())
        policy.optim_step(None)
    mixed = [(policy, request) for request in asked for policy in policies]
    for fused in (False, True)[: 1 + (CONFIGS[name]().model_type in PROVED["fused"])]:  # in 16 bits; here in 32
        base.shared.ways = replace(base.shared.ways, fused=fused)
        answers = base.shared.engine.complete(mixed)
        for policy in policies:
            own = [answer for (other, _), answer in zip(mixed, answers, strict=True) if other is policy]
            require_equal(policy, policy.shared.net, asked, own)


@pytest.mark.parametrize(("config", "words"), [
    (hf.HeliumConfig(**LLAMA, head_dim=8), "a helium model runs slowly"),
    (hf.MambaConfig(**{k: SHAPE[k] for k in SHAPE if k != "num_attention_heads"}, state_size=4), "a mamba model runs"),
    (hf.GptOssConfig(**LLAMA, layer_types=FOUR["layer_types"][:2], head_dim=8, sliding_window=6, num_local_experts=4,
                     num_experts_per_tok=2), "a gpt_oss model runs slowly"),
    (hf.LlamaConfig(**LLAMA, rope_parameters=ROPE | {"rope_type": "dynamic"}), "with dynamic rotation runs slowly"),
    (hf.LlamaConfig(**LLAMA, sliding_window=6), "with sliding_attention runs slowly"),
])  # fmt: skip
def test_a_model_that_the_table_does_not_name_is_run_plainly_with_a_warning(folder_of, config, words):
    folder = folder_of(config)
    with pytest.warns(UserWarning, match=words):
        policy = load_policy(folder, lr=1e-3)
    assert policy.shared.ways == PLAIN
    asked = requests(lengths=(1, 11), each=2, max_tokens=5)
    require_equal(policy, policy.shared.net, asked, policy.sample(asked))
    with pytest.raises(PolicyError, match="no forward-mode derivative was tested"):
        policy.directional_derivatives([], reinforce(), [])


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("kind", [hf.Phi3Config, hf.LlamaConfig])
def test_the_length_of_other_rows_does_not_choose_the_factors_of_longrope(folder_of, kind, plain):
    own = {"original_max_position_embeddings": 24}
    config = kind(**LLAMA, **own, rope_scaling=LONGROPE | own | {"factor": 4.0})
    policy = load_policy(folder_of(config), lr=1e-3, plain=plain)
    short, long = requests(lengths=(1, 3), each=2), requests(lengths=(14, 20), each=2, seed=1)  # 14 to 33 tokens
    answers = policy.sample(short + long)
    assert [one.ids for one in answers[: len(short)]] == [one.ids for one in policy.sample(short)]
    assert gap(policy, short + long, answers) < 1e-4
    samples = samples_of(short + long, answers)
    assert (policy.forward(samples).logprobs_N - old_logprobs(samples)).abs().max() < 1e-4
    with pytest.raises(PolicyError, match=r"20 prompt tokens and up to 7 more cross 24 tokens.*max_tokens to 4"):
        policy.sample(requests(lengths=(7,), each=1))


@pytest.mark.parametrize("config", [
    hf.DogeConfig(**LLAMA, keep_window_size=8),
    hf.Gemma3TextConfig(**FOUR, head_dim=8, sliding_window=6, use_bidirectional_attention=True)])  # fmt: skip
def test_a_model_whose_rows_are_not_causal_is_refused(folder_of, config):
    with pytest.raises(PolicyError, match="a token has another probability than without the tokens after"):
        load_policy(folder_of(config))


def test_products_of_experts_have_no_forward_mode_derivative(folder_of):
    policy = load_policy(folder_of("experts"), lr=1e-3)
    samples = samples_of(asked := requests(each=2), policy.sample(asked))
    policy.forward_backward(samples, reinforce())
    with pytest.raises(PolicyError, match="derivative"):
        policy.directional_derivatives(samples, reinforce(), [part.clone() for _, part in policy.gradients()])


@pytest.mark.parametrize("name", PEOPLE_LOAD)
def test_a_step_in_sixteen_bits(folder_of, name):
    policy = load_policy(folder_of(name), lora=2, dtype="bfloat16")
    asked = requests(lengths=(1, 4), each=1)
    policy.forward_backward(samples_of(asked, policy.sample(asked)), reinforce())
    policy.optim_step(1.0)
    assert len(policy.sample(asked)) == len(asked)
