"""The sampler: what is drawn, its log-probabilities, and that company in the batch changes neither."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from backends.drawn import KINDS, requests

from mas_lab.backends.loading import load_policy
from mas_lab.backends.torch import padded
from mas_lab.policy import PolicyError, Request

PROMPT = (5, 6, 7)


def probabilities(policy, temperature=1.3):
    """Return the model's own distribution (V,) after `PROMPT`."""
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([PROMPT])).logits[0, -1].double()
    return torch.softmax(logits / temperature, -1)


def assert_equal(answers, expected):
    for one, other in zip(answers, expected, strict=True):
        assert (one.ids, one.text, one.finish) == (other.ids, other.text, other.finish)
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=3e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_alone_is_the_same_request_in_a_batch_of_any_budget_and_dropout_is_off(model_dirs, kind):
    policy = load_policy(model_dirs[kind])
    asked = requests(temperatures=(0.7, 1.0), max_tokens=12, each=2)
    together = policy.sample(asked)
    order = np.random.default_rng(1).permutation(len(asked))
    policy.model.train()  # as somebody may leave it
    assert_equal(policy.sample([asked[i] for i in order]), [together[i] for i in order])
    assert_equal([policy.sample([request])[0] for request in asked], together)
    for options in ({}, {"packing": "padded"}, {"plain": True}):
        assert_equal(load_policy(model_dirs[kind], sample_tokens=25, **options).sample(asked), together)


def test_draws_follow_the_distribution_and_temperature_0_is_greedy_with_logprob_0(qwen3):
    policy = load_policy(qwen3)
    first, second = policy.sample([Request(PROMPT, 6, 0.0, seed) for seed in (1, 2)])
    assert first.ids == second.ids and set(first.logprobs) == {0.0}
    assert first.ids[0] == int(probabilities(policy).argmax())
    answers = policy.sample([Request(PROMPT, 1, 1.3, seed) for seed in range(2000)])
    counts = np.bincount([answer.ids[0] for answer in answers], minlength=64)
    expected = probabilities(policy).numpy() * 2000
    often = expected >= 5
    chi2 = ((counts - expected) ** 2 / expected)[often].sum()
    assert often.sum() > 3 and chi2 < often.sum() + 5 * np.sqrt(2 * often.sum())


def test_eos_is_kept_and_nothing_follows_it(model_dirs):
    """Trap 3, where the pad token is the end token (trap 4), and where it is the last allowed token."""
    policy = load_policy(model_dirs["pad=eos"])
    eos = policy.tokenizer.eos_token_id
    answers = policy.sample(requests(each=40, max_tokens=12, temperatures=(3.0,)))
    ended = [a for a in answers if a.finish == "eos"]
    assert ended and len(ended) < len(answers)
    assert max(len(a.ids) for a in ended) > min(len(a.ids) for a in ended)
    for answer in answers:
        assert len(answer.ids) == len(answer.logprobs) and eos not in answer.ids[:-1]
        assert answer.ids[-1] == eos if answer.finish == "eos" else len(answer.ids) == 12 and answer.ids[-1] != eos
    short = [a for a in policy.sample([Request((5, 6), 1, 3.0, seed) for seed in range(300)]) if a.ids[0] == eos]
    assert short and all(a.finish == "eos" for a in short)


def test_a_request_beyond_the_context_is_refused_with_its_lengths(qwen3):
    policy = load_policy(qwen3)
    assert policy.context == 64
    assert policy.sample([Request((5,) * 60, 4, 1.0, 0)])
    with pytest.raises(PolicyError, match=r"60 prompt tokens \+ max_tokens 5 = 65 exceed the context of 64"):
        policy.sample([Request((5,) * 60, 5, 1.0, 0)])


def test_a_completion_ends_with_the_token_that_completes_a_stop_string(qwen3):
    policy = load_policy(qwen3)
    asked = requests(each=20, max_tokens=12, temperatures=(2.0,))
    free = policy.sample(asked)
    stop = (free[0].text[3:7], "never said")
    stopping = policy.sample([*asked, *[replace(one, stop=stop) for one in asked]])
    assert_equal(stopping[: len(asked)], free)  # requests without a stop are not moved by those beside them
    for whole, cut in zip(free, stopping[len(asked) :], strict=True):
        n = len(cut.ids)
        assert cut.ids == whole.ids[:n] and cut.text == policy.decode(cut.ids)
        np.testing.assert_allclose(cut.logprobs, whole.logprobs[:n], atol=1e-5)
        assert stop[0] not in policy.decode(whole.ids[: n - 1])
        assert (cut.finish == "stop") == (stop[0] in cut.text and cut.finish != "eos")
        assert cut.finish == "stop" or cut == replace(whole, logprobs=cut.logprobs)


def test_a_large_vocabulary_is_drawn_from_in_parts_with_the_same_result(qwen3, monkeypatch):
    asked = [replace(one, top_k=40) for one in requests(temperatures=(0.0, 1.0))]
    whole = load_policy(qwen3).sample(asked)
    monkeypatch.setattr(padded, "CACHED_LOGITS", 64 * 5)
    assert load_policy(qwen3).sample(asked) == whole


@pytest.mark.parametrize("cut", [{"top_k": 3}, {"top_p": 0.4}, {"top_k": 4, "top_p": 0.6}])
def test_top_k_and_top_p_leave_the_likeliest_with_their_renormalized_probabilities(qwen3, cut):
    policy = load_policy(qwen3)
    full, kept = probabilities(policy), {}
    likeliest = full.argsort(descending=True)[: cut.get("top_k", 64)]
    for i in likeliest.tolist():
        if sum(kept.values()) / full[likeliest].sum() >= cut.get("top_p", 2.0):
            break
        kept[i] = full[i].item()
    answers = policy.sample([Request(PROMPT, 1, 1.3, seed, **cut) for seed in range(400)])
    assert {answer.ids[0] for answer in answers} == set(kept)
    for answer in answers:
        expected = np.log(kept[answer.ids[0]] / sum(kept.values()))
        assert answer.logprobs[0] == pytest.approx(expected, abs=1e-4)
