"""The sampler: what is drawn, its log-probabilities, and that company in the batch changes neither."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mas_lab.backends.loading import load_policy
from mas_lab.backends.torch.fast import decoders
from mas_lab.policy import PolicyError, Request

KINDS = ("qwen3", "llama", "gpt2", "gemma2")


def requests(prompts=(5, 9, 7), each=4, max_tokens=8, temperatures=(1.0,), seed=0):
    rng = np.random.default_rng(seed)
    ids = [tuple(rng.integers(4, 60, n).tolist()) for n in prompts]
    return [Request(p, max_tokens, t, int(rng.integers(2**62))) for p in ids for t in temperatures for _ in range(each)]


def plain_logprobs(policy, request, completion):
    """One row, no cache, no packing: the model's own forward pass."""
    ids = torch.tensor([[*request.prompt_ids, *completion.ids]])
    with torch.no_grad():
        logits = policy.model(input_ids=ids).logits[0, len(request.prompt_ids) - 1 : -1]
    logprobs = torch.log_softmax(logits.double() / request.temperature, -1)
    return logprobs.gather(1, torch.tensor(completion.ids)[:, None])[:, 0].numpy()


@pytest.mark.parametrize("packing", ["auto", "padded"])
@pytest.mark.parametrize("kind", KINDS)
def test_sampled_logprobs_are_the_models_own(model_dirs, kind, packing):
    policy = load_policy(model_dirs[kind], packing=packing)
    assert policy.shared.by_tree == (packing == "auto")
    asked = requests(temperatures=(0.5, 1.0, 1.7))
    for request, completion in zip(asked, policy.sample(asked), strict=True):
        ratio = np.exp(plain_logprobs(policy, request, completion) - np.array(completion.logprobs))
        assert np.abs(ratio - 1).max() < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_alone_is_the_same_request_in_a_batch(model_dirs, kind):
    policy = load_policy(model_dirs[kind])
    asked = requests(temperatures=(0.7, 1.0))
    together = policy.sample(asked)
    order = np.random.default_rng(1).permutation(len(asked))
    shuffled = dict(zip(order.tolist(), policy.sample([asked[i] for i in order]), strict=True))
    for i, request in enumerate(asked):
        alone = policy.sample([request])[0]
        for other in (together[i], shuffled[i]):
            assert other.ids == alone.ids and other.text == alone.text
            np.testing.assert_allclose(other.logprobs, alone.logprobs, atol=1e-5)


def test_small_budgets_change_nothing(qwen3):
    asked = requests()
    whole, cut = (load_policy(qwen3, sample_tokens=budget).sample(asked) for budget in (65536, 40))
    assert [c.ids for c in whole] == [c.ids for c in cut]


def test_more_room_is_made_when_completions_outgrow_it(qwen3, monkeypatch):
    asked = requests(max_tokens=40, each=6)
    expected = load_policy(qwen3).sample(asked)
    monkeypatch.setattr(decoders, "FIRST_ROOM", 3)
    for one, other in zip(load_policy(qwen3).sample(asked), expected, strict=True):
        assert one.ids == other.ids
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def test_draws_follow_the_distribution(qwen3):
    policy = load_policy(qwen3)
    prompt = (5, 6, 7)
    counts = np.zeros(64)
    for completion in policy.sample([Request(prompt, 1, 1.3, seed) for seed in range(4000)]):
        counts[completion.ids[0]] += 1
    with torch.no_grad():
        expected = torch.softmax(
            policy.model(input_ids=torch.tensor([prompt])).logits[0, -1].double() / 1.3, -1
        ).numpy()
    often = expected * 4000 >= 5
    chi2 = ((counts - expected * 4000) ** 2 / (expected * 4000))[often].sum()
    assert often.sum() > 3
    assert chi2 < often.sum() + 5 * np.sqrt(2 * often.sum())


def test_temperature_zero_is_greedy_with_logprob_zero(qwen3):
    policy = load_policy(qwen3)
    asked = [Request((5, 6, 7), 6, 0.0, seed) for seed in (1, 2)]
    first, second = policy.sample(asked)
    assert first.ids == second.ids and set(first.logprobs) == {0.0}
    with torch.no_grad():
        assert first.ids[0] == int(policy.model(input_ids=torch.tensor([[5, 6, 7]])).logits[0, -1].argmax())


@pytest.mark.parametrize("kind", ["qwen3", "pad=eos"])
def test_eos_is_kept_and_nothing_follows_it(model_dirs, kind):
    """Trap 3, also where the pad token is the end token (trap 4)."""
    policy = load_policy(model_dirs[kind])
    eos = policy.tokenizer.eos_token_id
    answers = policy.sample(requests(each=40, max_tokens=12, temperatures=(3.0,)))
    ended = [a for a in answers if a.finish == "eos"]
    assert ended and len(ended) < len(answers)
    assert max(len(a.ids) for a in ended) > min(len(a.ids) for a in ended)
    for answer in answers:
        assert len(answer.ids) == len(answer.logprobs)
        if answer.finish == "eos":
            assert answer.ids[-1] == eos and eos not in answer.ids[:-1]
        else:
            assert len(answer.ids) == 12 and eos not in answer.ids


def test_eos_as_the_last_allowed_token_is_eos(qwen3):
    policy = load_policy(qwen3)
    short = [a for a in policy.sample([Request((5, 6), 1, 3.0, seed) for seed in range(300)]) if a.ids[0] == 2]
    assert short and all(a.finish == "eos" for a in short)


def test_each_request_has_its_own_length(qwen3):
    policy = load_policy(qwen3)
    asked = [Request((5, 6, 7), n, 1.0, 3) for n in (1, 3, 20, 40)]
    answers = policy.sample(asked)
    longest = answers[-1].ids
    for request, answer in zip(asked, answers, strict=True):
        assert answer.ids == longest[: request.max_tokens]


def test_a_request_beyond_the_context_is_refused_with_its_lengths(qwen3):
    policy = load_policy(qwen3)
    assert policy.context == 64
    assert policy.sample([Request((5,) * 60, 4, 1.0, 0)])
    with pytest.raises(PolicyError, match=r"60 prompt tokens \+ max_tokens 5 = 65 exceed the context of 64"):
        policy.sample([Request((5,) * 60, 5, 1.0, 0)])
    with pytest.raises(PolicyError, match="both must be"):
        policy.engine.submit(policy, [Request((), 5, 1.0, 0)])


def test_the_engine_answers_all_that_is_pending(qwen3):
    policy = load_policy(qwen3)
    asked = requests()
    tickets = policy.engine.submit(policy, asked[:5]) + policy.engine.submit(policy, asked[5:])
    expected = [c.ids for c in policy.sample(asked)]
    answers = dict(policy.engine.ready())
    assert [answers[t].ids for t in tickets] == expected
    assert policy.engine.ready() == [] and not policy.engine.streams


def test_encode_applies_the_chat_template(qwen3):
    policy = load_policy(qwen3)
    ids = policy.encode([{"role": "user", "content": "w5 w6"}])
    assert ids == [4, 9, 10, 3] and all(isinstance(i, int) for i in ids)
    assert policy.decode([9, 10, 2]) == "w5 w6"


def test_dropout_is_off_even_if_someone_switched_it_on(model_dirs):
    policy = load_policy(model_dirs["gpt2"])
    asked = requests()
    expected = policy.sample(asked)
    policy.model.train()
    assert policy.sample(asked) == expected


def test_a_completion_ends_with_the_token_that_completes_a_stop_string(qwen3):
    policy = load_policy(qwen3)
    asked = requests(each=20, max_tokens=12, temperatures=(2.0,))
    free = policy.sample(asked)
    stop = (free[0].text[3:7], "never said")
    for request, whole, cut in zip(asked, free, policy.sample([replace(one, stop=stop) for one in asked]), strict=True):
        n = len(cut.ids)
        assert cut.ids == whole.ids[:n] and cut.text == policy.decode(cut.ids)
        np.testing.assert_allclose(cut.logprobs, whole.logprobs[:n], atol=1e-5)
        before = policy.tokenizer.decode(whole.ids[: n - 1], skip_special_tokens=True)
        assert stop[0] not in before
        assert (cut.finish == "stop") == (stop[0] in cut.text and cut.finish != "eos")
        if cut.finish != "stop":
            assert cut == replace(whole, logprobs=cut.logprobs) and n <= request.max_tokens


def test_a_request_without_a_stop_is_not_moved_by_one_beside_it(qwen3):
    policy, asked = load_policy(qwen3), requests(each=2, max_tokens=8)
    stops = [replace(one, stop=(" ",)) for one in asked]
    assert [a.ids for a in policy.sample([*asked, *stops])[: len(asked)]] == [a.ids for a in policy.sample(asked)]


@pytest.mark.parametrize(
    ("cut", "left"), [({"top_k": 3}, 3), ({"top_p": 0.4}, None), ({"top_k": 4, "top_p": 0.6}, None)]
)
def test_top_k_and_top_p_leave_the_likeliest_with_their_renormalized_probabilities(qwen3, cut, left):
    policy, prompt = load_policy(qwen3), (5, 6, 7)
    with torch.no_grad():
        full = torch.softmax(policy.model(input_ids=torch.tensor([prompt])).logits[0, -1].double() / 1.3, -1)
    kept, share = {}, full.sort(descending=True).values[: cut.get("top_k", 64)].sum()
    for i in full.argsort(descending=True)[: cut.get("top_k", 64)].tolist():
        if sum(kept.values()) / share >= cut.get("top_p", 2.0):
            break
        kept[i] = full[i].item()
    answers = policy.sample([Request(prompt, 1, 1.3, seed, **cut) for seed in range(400)])
    assert {answer.ids[0] for answer in answers} == set(kept) and len(kept) in (left or len(kept), left)
    for answer in answers:
        expected = np.log(kept[answer.ids[0]] / sum(kept.values()))
        assert answer.logprobs[0] == pytest.approx(expected, abs=1e-4)
