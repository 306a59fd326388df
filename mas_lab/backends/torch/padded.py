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

from mas_lab.policy import Completion, PolicyError, PolicyRequest, Request, Sample, WaveEngine

Item = TypeVar("Item")
LARGE_LOGITS = 2**25
"""Number of logits above which a sampler draws, and an update computes them, in chunks."""
CACHED_LOGITS = 2**18
"""Number of logits in a chunk of a sampler on a CPU: its buffers stay in the cache, which takes a third of the time."""
DRAWN_AT_ONCE = 4
"""A batch of requests has at most this many times `LARGE_LOGITS` logits."""


class PaddedEngine(WaveEngine):
    """An engine that samples the requests of one adapter at a time, one padded row per request."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    @torch.inference_mode()
    def complete(self, requests: Sequence[PolicyRequest]) -> list[Completion]:
        """Return a completion per (policy, request), in order.

        Raises PolicyError if a prompt has a token that the model has no embedding for.
        """
        size = len(self.model.net.get_input_embeddings().weight)
        for policy, request in requests:
            if (largest := max(request.prompt_ids)) >= size:
                token = self.model.tokenizer.convert_ids_to_tokens(largest)
                raise PolicyError(
                    f"policy {policy.name!r}: a prompt has the token {largest} ({token!r}), and the model has {size} "
                    "embeddings; its tokenizer belongs to another model"
                )
        found: dict[int, Completion] = {}
        for places in self._batches(requests):
            requests[places[0]][0].activate()
            completions = self._sample([requests[place] for place in places])
            found |= dict(zip(places, completions, strict=True))
        return [found[place] for place in range(len(requests))]

    def _batches(self, requests: Sequence[PolicyRequest]) -> Iterator[list[int]]:
        """Yield the places of requests to one adapter, about `sample_tokens` tokens with padding at a time."""

        def size(place: int) -> int:
            return len(requests[place][1].prompt_ids) + requests[place][1].max_tokens

        def fits(batch: list[int], place: int) -> bool:
            is_full = size(batch[0]) * (len(batch) + 1) > self.model.options.sample_tokens
            return kinds[place] == kinds[batch[0]] and not is_full

        kinds = [(one[0].adapter or "", self.batch_class(one)) for one in requests]
        return filled(sorted(range(len(requests)), key=lambda place: (*kinds[place], -size(place))), fits)

    def batch_class(self, one: PolicyRequest) -> int:
        """Return a number that all requests of a batch must share."""
        policy, request = one
        is_long = self.model.is_long(policy.name, len(request.prompt_ids), request.max_tokens)
        return int(is_long) if self.model.ways.cached else len(request.prompt_ids)

    def inputs(self, ids_RL: torch.Tensor, cache: Any) -> dict[str, Any]:
        """Return the newest tokens and the cache of those before as arguments of the model."""
        return {"input_ids": ids_RL, "past_key_values": cache, "use_cache": True, "logits_to_keep": 1}

    def _sample(self, requests: Sequence[PolicyRequest]) -> list[Completion]:
        """Sample token after token; a row that has ended is still computed, and its later tokens are dropped."""
        model = self.model
        policies_R, requests_R = zip(*requests, strict=True)
        longest = max(len(request.prompt_ids) for request in requests_R)
        ids = torch.tensor([[0] * (longest - len(one.prompt_ids)) + list(one.prompt_ids) for one in requests_R])
        mask_RL = torch.tensor([[i >= longest - len(one.prompt_ids) for i in range(longest)] for one in requests_R])
        ids, mask_RL = ids.to(model.device), mask_RL.long().to(model.device)
        uniform_RT = uniforms(requests_R)
        temperature_R = np.array([request.temperature for request in requests_R], np.float32)
        rows, truncation = np.arange(len(requests)), TopKTopP(requests_R)
        ids_R: list[list[int]] = [[] for _ in requests]
        logprobs_R: list[list[float]] = [[] for _ in requests]
        finish_R: list[str | None] = [None] * len(requests)
        cache = None
        for t in range(uniform_RT.shape[1]):
            at = (mask_RL.cumsum(1) - 1).clamp(0, model.context - 1)[:, -ids.shape[1] :]
            with model.computing():
                if model.ways.cached:
                    out = model.net(attention_mask=mask_RL, position_ids=at, **self.inputs(ids, cache))
                    cache = out.past_key_values
                else:
                    out = model.net(input_ids=ids, use_cache=False)
            logits_RV = out.logits[:, -1]
            drawn_R, drawn_logprobs_R = sample_from_logits(logits_RV, rows, temperature_R, uniform_RT[:, t], truncation)
            model.require_drawn(drawn_logprobs_R, policies_R, rows)
            for row, request in enumerate(requests_R):
                if finish_R[row] is None:
                    ids_R[row].append(int(drawn_R[row]))
                    logprobs_R[row].append(float(drawn_logprobs_R[row]))
                    finish_R[row] = self._finish(request, ids_R[row])
            if None not in finish_R:
                break
            newest = torch.from_numpy(drawn_R)[:, None].to(model.device)
            ids = newest if model.ways.cached else torch.cat([ids, newest], 1)
            mask_RL = torch.cat([mask_RL, torch.ones_like(mask_RL[:, :1])], 1)
        return list(map(self.completion, ids_R, logprobs_R, finish_R))

    def completion(self, ids: Sequence[int], logprobs: Sequence[float], finish: str) -> Completion:
        """Return a completion with its text."""
        text = self.model.tokenizer.decode(ids, skip_special_tokens=True)
        return Completion(tuple(ids), tuple(logprobs), text, finish)

    def _finish(self, request: Request, ids: list[int]) -> str | None:
        """Return the reason why a completion has ended, or `None` if it has not."""
        if ids[-1] in self.model.eos_ids():
            return "eos"
        if request.stop and ends_in(self.model.tokenizer, ids, request.stop):
            return "stop"
        return "length" if len(ids) == request.max_tokens else None


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
        rows = [row for row, one in enumerate(self.requests_R) if one.is_truncated]
        if not rows:
            return logprobs_RV
        chosen = [self.requests_R[row] for row in rows]
        device, size = logprobs_RV.device, logprobs_RV.shape[1]
        top_k_R1 = torch.tensor([[one.top_k or size] for one in chosen], device=device)
        top_p_R1 = torch.tensor([[one.top_p if one.top_p < 1 else 2.0] for one in chosen], device=device)
        sorted_RV, order_RV = logprobs_RV[rows].sort(dim=-1, descending=True, stable=True)
        beyond_RV = torch.arange(size, device=device)[None] >= top_k_R1
        truncated_RV = sorted_RV.masked_fill(beyond_RV, -torch.inf).log_softmax(-1)
        before_RV = truncated_RV.exp().cumsum(-1) - truncated_RV.exp()
        truncated_RV = truncated_RV.masked_fill(before_RV >= top_p_R1, -torch.inf).log_softmax(-1)
        cut_RV = logprobs_RV.clone()
        cut_RV[rows] = torch.empty_like(truncated_RV).scatter_(-1, order_RV, truncated_RV)
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

    `token_N` is the place of each token among the tokens of all samples, `row_N` the row of its sample in this batch.
    """

    def __init__(self, samples: Sequence[Sample], first_token: int, device: torch.device):
        rows = [[*sample.prompt_ids, *sample.completion_ids] for sample in samples]
        longest = max(map(len, rows))
        self.ids_BL = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=device)
        self.inputs = {"input_ids": self.ids_BL}
        if any(len(row) < longest for row in rows):
            mask = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
            self.inputs["attention_mask"] = torch.tensor(mask, device=device)
        lengths = [len(sample.completion_ids) for sample in samples]
        self.token_N = first_token + np.arange(sum(lengths))
        self.row_N = torch.repeat_interleave(torch.arange(len(samples)), torch.tensor(lengths)).to(device)
        # Position t predicts the token at t + 1.
        at = [len(s.prompt_ids) - 1 + t for s in samples for t in range(len(s.completion_ids))]
        self.at_N = torch.tensor(at, device=device)
        self.end_B = torch.tensor([len(sample.prompt_ids) - 1 for sample in samples], device=device)
        self.rows_B = torch.arange(len(samples), device=device)
        self.temperature_B = torch.tensor([sample.temperature for sample in samples], device=device)

    def token_logprobs(self, net, entropy_grad: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probability and entropy (N,) of each token, in float32, at the temperature it was sampled at."""
        logits_BLV = net(**self.inputs, use_cache=False).logits
        logits_NV = logits_BLV[self.row_N, self.at_N].float() / self.temperature_B[self.row_N, None]
        logprobs_NV = logits_NV.log_softmax(-1)
        known_NV = logprobs_NV if entropy_grad else logprobs_NV.detach()
        entropy_N = -(known_NV.exp() * known_NV).sum(-1)
        return logprobs_NV.gather(1, self.ids_BL[self.row_N, self.at_N + 1][:, None])[:, 0], entropy_N


def require_trainable(samples: Sequence[Sample]) -> None:
    """Raise PolicyError if a sample was drawn greedily or has no tokens."""
    for i, sample in enumerate(samples):
        if sample.temperature <= 0:
            raise PolicyError(f"sample {i} was drawn greedily (temperature {sample.temperature}): nothing to train on")
        if not len(sample.prompt_ids) or not len(sample.completion_ids):
            raise PolicyError(f"sample {i} has an empty prompt or an empty completion")


def padded_batches(samples: Sequence[Sample], model) -> Iterator[PaddedBatch]:
    """Yield the samples in their order, in batches of at most `train_tokens` tokens, padding counted."""

    def fits(batch: list[Sample], sample: Sample) -> bool:
        longest = max(len(one.prompt_ids) + len(one.completion_ids) for one in (*batch, sample))
        is_full = longest * (len(batch) + 1) > model.options.train_tokens
        return model.class_of(sample) == model.class_of(batch[0]) and not is_full

    require_trainable(samples)
    first_token = 0
    for batch in filled(samples, fits):
        yield PaddedBatch(batch, first_token, model.device)
        first_token += sum(len(one.completion_ids) for one in batch)


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
