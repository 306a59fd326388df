"""The plain sampler and the plain forward pass: one padded row per request or sample, and the model's own KV cache.

A request's uniform numbers depend on its seed alone, and each token is drawn by inverting the cumulative distribution.
So a draw does not depend on the other requests of its batch, beyond float noise. `fast` computes the same numbers from
trees of prompts and completions, and draws tokens with the functions of this file. Leaves out: penalties and beams.

Shapes: R requests; L tokens of the longest, padded on the left to sample and on the right to train; M distributions, at
most R; B samples; N sampled tokens; V vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers.generation.logits_process import TopKLogitsWarper, TopPLogitsWarper

from mas_lab.policy import Completion, PolicyRequest, Request, Sample, WaveEngine

Item = TypeVar("Item")
LARGE_LOGITS = 2**25
"""Number of logits above which a sampler draws, and an update computes them, in chunks."""
CACHED_LOGITS = 2**18
"""Number of logits in a chunk of a sampler on a CPU: its buffers stay in the cache, which takes a third of the time."""
DRAWN_AT_ONCE = 4
"""A batch of requests has at most this many times `LARGE_LOGITS` logits."""


class PaddedEngine(WaveEngine):
    """An engine that samples the requests of one adapter at a time, one padded row per request."""

    mixes = False
    """True if a batch has requests of several adapters, and those of one prompt compute it once."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    @torch.inference_mode()
    def complete(self, requests: Sequence[PolicyRequest]) -> list[Completion]:
        """Return a completion per (policy, request), in order."""
        found: dict[int, Completion] = {}
        for places in self._batches(requests):
            requests[places[0]][0].activate()
            completions = self._sample([requests[place] for place in places])
            found |= dict(zip(places, completions, strict=True))
        return [found[place] for place in range(len(requests))]

    def _batches(self, requests: Sequence[PolicyRequest]) -> Iterator[list[int]]:
        """Yield the places of requests by batch class, adapter and prompt length, about `sample_tokens` at a time."""
        most = DRAWN_AT_ONCE * LARGE_LOGITS // self.model.net.config.get_text_config().vocab_size
        groups: dict[tuple, list[int]] = {}
        for place, one in enumerate(requests):
            key = self.batch_class(one), *prompt_key(one), 0 if self.mixes else place
            groups.setdefault(key, []).append(place)
        batch, tokens, last = [], 0, None
        for key, own in sorted(groups.items(), key=lambda group: (*group[0][:2], len(group[0][2]))):
            kind = key[:1] if self.mixes else key[:2]
            size = len(key[2]) + sum(requests[place][1].max_tokens for place in own)
            full = tokens + size > self.model.options.sample_tokens or len(batch + own) > most
            if batch and (full or kind != last):
                yield batch
                batch, tokens = [], 0
            batch, tokens, last = batch + own, tokens + size, kind
        if batch:
            yield batch

    def batch_class(self, one: PolicyRequest) -> int:
        """Return a number that all requests of a batch must share."""
        policy, request = one
        is_long = self.model.is_long(policy.name, len(request.prompt_ids), request.max_tokens)
        return int(is_long) if self.model.ways.padded else len(request.prompt_ids)

    def inputs(self, ids_RL: torch.Tensor, cache: Any) -> dict[str, Any]:
        """Return the newest tokens and the cache of those before as arguments of the model."""
        return {"input_ids": ids_RL, "past_key_values": cache, "use_cache": True, "logits_to_keep": 1}

    def _sample(self, requests: Sequence[PolicyRequest]) -> list[Completion]:
        with self.model.computing():
            return self.decoded(PaddedDecoder(self, requests), requests, np.arange(len(requests)))

    def decoded(self, decoder: Any, requests: Sequence[PolicyRequest], node_R: np.ndarray) -> list[Completion]:
        """Return completions drawn token after token; `node_R` is the prompt of each request in the decoder.

        A decoder returns the logits (M, V) of its nodes, for the prompts by `prefill()`, and then by `extend(parent_M,
        ids_M)` for new tokens after nodes of the call before, in ascending order.
        """
        policies_R, requests_R = zip(*requests, strict=True)
        eos = np.array(sorted(self.model.eos_ids()))
        most_R = np.array([request.max_tokens for request in requests_R])
        temperature_R = np.array([request.temperature for request in requests_R], np.float32)
        uniform_RT = uniforms(requests_R)
        ids_RT, logprobs_RT = np.zeros(uniform_RT.shape, np.int64), np.zeros(uniform_RT.shape)
        lengths_R, finish_R = most_R.copy(), ["length"] * len(most_R)
        cut_R, live, logits_MV = TopKTopP(requests_R), np.arange(len(most_R)), decoder.prefill()
        for step in range(uniform_RT.shape[1]):
            drawing = node_R, temperature_R[live], uniform_RT[live, step], cut_R[live]
            ids, logprobs = sample_from_logits(logits_MV, *drawing)
            self.model.require_drawn(logprobs, policies_R, live)
            ids_RT[live, step], logprobs_RT[live, step] = ids, logprobs
            ended = np.isin(ids, eos)
            for place, row in enumerate(live):
                stop = requests_R[row].stop
                if ended[place]:
                    finish_R[row] = "eos"
                elif stop and ends_in(self.model.tokenizer, ids_RT[row, : step + 1].tolist(), stop):
                    finish_R[row], ended[place] = "stop", True
            lengths_R[live[ended]] = step + 1
            on = ~ended & (step + 1 < most_R[live])
            if not on.any():
                break
            live = live[on]
            # Candidates that share a node and drew the same token share a node in the next step.
            vocabulary = logits_MV.shape[1]
            branches, node_R = np.unique(node_R[on] * vocabulary + ids[on], return_inverse=True)
            logits_MV = decoder.extend(branches // vocabulary, branches % vocabulary)
        ids_R = [ids_T[:length].tolist() for ids_T, length in zip(ids_RT, lengths_R, strict=True)]
        texts_R = self.model.tokenizer.batch_decode(ids_R, skip_special_tokens=True)
        found = zip(ids_R, logprobs_RT, texts_R, finish_R, strict=True)
        return [Completion(tuple(ids), tuple(own[: len(ids)].tolist()), text, why) for ids, own, text, why in found]


class PaddedDecoder:
    """A decoder with a padded row per request and the model's own cache. A row that has ended is still computed."""

    def __init__(self, engine: PaddedEngine, requests: Sequence[PolicyRequest]):
        self.engine, self.cache, self.row_M = engine, None, np.arange(len(requests))
        prompts = [torch.tensor(request.prompt_ids) for _, request in requests]
        padded = (pad_sequence(rows, True, 0, "left") for rows in (prompts, [torch.ones_like(ids) for ids in prompts]))
        self.ids_RL, self.mask_RL = (rows_RL.to(engine.model.device) for rows_RL in padded)

    def prefill(self) -> torch.Tensor:
        """Return the logits (M, V) after each row that has not ended."""
        model = self.engine.model
        if not model.ways.padded:
            return model.net(input_ids=self.ids_RL, use_cache=False).logits[self.row_M, -1]
        new_RL = self.ids_RL if self.cache is None else self.ids_RL[:, -1:]
        at_RL = (self.mask_RL.cumsum(1) - 1).clamp(0, model.context - 1)[:, -new_RL.shape[1] :]
        out = model.net(attention_mask=self.mask_RL, position_ids=at_RL, **self.engine.inputs(new_RL, self.cache))
        self.cache = out.past_key_values
        return out.logits[self.row_M, -1]

    def extend(self, parent_M: np.ndarray, ids_M: np.ndarray) -> torch.Tensor:
        """Return the logits (M, V) after tokens `ids_M`, each after the row `parent_M` of the last call."""
        self.row_M = self.row_M[parent_M]
        newest_R1 = torch.zeros_like(self.ids_RL[:, :1])
        newest_R1[self.row_M, 0] = torch.from_numpy(ids_M).to(newest_R1)
        self.ids_RL = torch.cat([self.ids_RL, newest_R1], 1)
        self.mask_RL = torch.cat([self.mask_RL, torch.ones_like(newest_R1)], 1)
        return self.prefill()


def prompt_key(one: PolicyRequest) -> tuple[str, tuple[int, ...]]:
    """Return the adapter and the prompt of a request."""
    policy, request = one
    return policy.adapter or "", tuple(request.prompt_ids)


def ends_in(tokenizer, ids: Sequence[int], stop: Sequence[str]) -> bool:
    """Return True if a stop text is in the last few tokens; a character is at most four tokens."""
    window = 4 * max(map(len, stop)) + 4
    text = tokenizer.decode(ids[-window:], skip_special_tokens=True)
    return any(one in text for one in stop)


def uniforms(requests_R: Sequence[Request]) -> np.ndarray:
    """Return uniform numbers (R, T) in [0, 1) by each request's seed alone, zero beyond its `max_tokens`."""
    uniform_RT = np.zeros((len(requests_R), max(request.max_tokens for request in requests_R)))
    bits = np.random.Philox(key=0)
    begin, generator = bits.state, np.random.Generator(bits)
    for uniform_T, request in zip(uniform_RT, requests_R, strict=True):
        begin["state"]["key"][0] = request.seed % 2**64
        bits.state = begin  # four times faster than a new generator
        uniform_T[: request.max_tokens] = generator.random(request.max_tokens)
    return uniform_RT


@dataclass(frozen=True)
class TopKTopP:
    """The truncation of each request: keep its `top_k` likeliest tokens, then the likeliest with mass `top_p`."""

    requests_R: Sequence[Request]

    def __getitem__(self, live: np.ndarray) -> "TopKTopP":
        return TopKTopP([self.requests_R[row] for row in live])

    def __call__(self, logprobs_RV: torch.Tensor) -> torch.Tensor:
        """Return renormalised log-probabilities, -inf for tokens that are left out; other rows stay as they are."""
        rows_of: dict[tuple[int, float], list[int]] = {}
        for row, one in enumerate(self.requests_R):
            if one.is_truncated:
                rows_of.setdefault((one.top_k or 0, one.top_p), []).append(row)
        cut_RV = logprobs_RV.clone() if rows_of else logprobs_RV
        for (top_k, top_p), rows in rows_of.items():
            kept_RV = TopKLogitsWarper(top_k)(None, logprobs_RV[rows]) if top_k else logprobs_RV[rows]
            kept_RV = TopPLogitsWarper(top_p)(None, kept_RV) if top_p < 1 else kept_RV
            cut_RV[rows] = kept_RV.log_softmax(-1)
        return cut_RV


def sample_from_logits(
    logits_MV: torch.Tensor, node_R: np.ndarray, temperature_R: np.ndarray, uniform_R: np.ndarray, cut_R: TopKTopP
):
    """Draw a token per request from its node's distribution at its temperature.

    The draw inverts the cumulative distribution, summed in float64. Temperature 0 takes the likeliest token, with
    log-probability 0. They are drawn in chunks of rows. Returns the arrays (ids_R, logprobs_R); a
    log-probability is NaN if the logits are not finite.
    """
    most = max(1, (LARGE_LOGITS if logits_MV.is_cuda else CACHED_LOGITS) // logits_MV.shape[1])
    if len(node_R) > most:
        rows = [np.arange(start, min(start + most, len(node_R))) for start in range(0, len(node_R), most)]
        parts = [sample_from_logits(logits_MV, node_R[r], temperature_R[r], uniform_R[r], cut_R[r]) for r in rows]
        return tuple(map(np.concatenate, zip(*parts, strict=True)))
    device = logits_MV.device
    greedy_R = temperature_R == 0
    scale_R = torch.from_numpy(np.where(greedy_R, np.float32(1), temperature_R)).to(device)
    logits_RV = logits_MV.index_select(0, torch.from_numpy(node_R).to(device)).float()
    logprobs_RV = cut_R(torch.log_softmax(logits_RV / scale_R[:, None], -1))
    likeliest_R = logits_RV.argmax(-1).cpu().numpy() if greedy_R.any() else None
    del logits_RV  # three buffers of this size, one of them in float64, are the peak of sampling
    upto_RV = logprobs_RV.exp().cumsum(-1, dtype=torch.float64)
    level_R1 = torch.from_numpy(uniform_R).to(device)[:, None] * upto_RV[:, -1:]
    ids_R1 = torch.searchsorted(upto_RV, level_R1, right=True).clamp(max=upto_RV.shape[1] - 1)
    logprobs_R = logprobs_RV.gather(1, ids_R1)[:, 0].cpu().numpy()
    ids_R = ids_R1[:, 0].cpu().numpy()
    if likeliest_R is not None:
        ids_R = np.where(greedy_R, likeliest_R, ids_R)
        logprobs_R = np.where(greedy_R & np.isfinite(logprobs_R), 0.0, logprobs_R)
    return ids_R, logprobs_R


class PaddedBatch:
    """Hold samples as tensors.

    `first_B` is the place of each sample's first token among the tokens of all samples, `token_N` that of each token,
    and `row_N` the row of its sample in this batch.
    """

    def __init__(self, samples: Sequence[Sample], first_B: Sequence[int], device: torch.device):
        rows = [torch.tensor([*sample.prompt_ids, *sample.completion_ids]) for sample in samples]
        self.ids_BL = pad_sequence(rows, batch_first=True).to(device)
        mask_BL = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        self.inputs = {"input_ids": self.ids_BL} | ({} if mask_BL.all() else {"attention_mask": mask_BL.to(device)})
        lengths = [len(sample.completion_ids) for sample in samples]
        self.token_N = np.concatenate([first + np.arange(n) for first, n in zip(first_B, lengths, strict=True)])
        self.row_N = torch.repeat_interleave(torch.arange(len(samples)), torch.tensor(lengths)).to(device)
        # Position t predicts the token at t + 1.
        at = [len(s.prompt_ids) - 1 + t for s in samples for t in range(len(s.completion_ids))]
        self.at_N = torch.tensor(at, device=device)
        self.temperature_B = torch.tensor([sample.temperature for sample in samples], device=device)

    def token_logprobs(self, net, entropy_grad: bool, call=None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probability and entropy (N,) of each token, in float32, at the temperature it was sampled at.

        `call` takes the place of `net` in a forward-mode derivative.
        """
        logits_BLV = (call or net)(**self.inputs, use_cache=False).logits
        logits_NV = logits_BLV[self.row_N, self.at_N].float() / self.temperature_B[self.row_N, None]
        logprobs_NV = logits_NV.log_softmax(-1)
        known_NV = logprobs_NV if entropy_grad else logprobs_NV.detach()
        entropy_N = -(known_NV.exp() * known_NV).sum(-1)
        return logprobs_NV.gather(1, self.ids_BL[self.row_N, self.at_N + 1][:, None])[:, 0], entropy_N


def padded_batches(samples: Sequence[Sample], model, part: slice, make: type[PaddedBatch]) -> Iterator[PaddedBatch]:
    """Yield the samples, or a part of them, in batches of similar length and at most `train_tokens` tokens, padded."""
    first = np.cumsum([0, *(len(sample.completion_ids) for sample in samples)])
    length = [len(sample.prompt_ids) + len(sample.completion_ids) for sample in samples]
    kind = [model.class_of(sample) for sample in samples]

    def fits(batch: list[int], i: int) -> bool:
        return kind[i] == kind[batch[0]] and length[batch[0]] * (len(batch) + 1) <= model.options.train_tokens

    order = sorted(range(len(samples)), key=lambda i: (kind[i], length[i]), reverse=True)
    for batch in filled(order[part], fits):
        yield make([samples[i] for i in batch], [first[i] for i in batch], model.device)


def filled(items: Iterable[Item], fits: Callable[[list[Item], Item], bool]) -> Iterator[list[Item]]:
    """Yield neighbours together; a new list begins with the first item that does not fit into the one before."""
    batch: list[Item] = []
    for item in items:
        if batch and not fits(batch, item):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch
