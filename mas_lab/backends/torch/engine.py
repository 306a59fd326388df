"""The sampler: all pending requests at once, each distinct prefix through the model once.

Requests of every policy that the engine serves are answered together: distinct prompts are prefilled once, candidates
that have said the same so far are one node of a tree, finished ones leave. A request's seed alone gives its uniform
numbers and each token is drawn by inverting the cumulative distribution, so that a draw does not depend (beyond float
noise) on who else is in the batch. Leaves out: penalties, beams and the like.

Shapes: G distinct prompts; R requests; M distinct live nodes, at most R; V vocabulary.
"""

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import count
from typing import Any

import numpy as np
import torch

from mas_lab.backends.torch.decoders import RowDecoder, TreeDecoder
from mas_lab.backends.torch.finite import require_drawn
from mas_lab.backends.torch.mixed_lora import Slices, mixing
from mas_lab.locks import alone
from mas_lab.policy import Completion, Request, check_fit


@dataclass
class Chunk:
    """Requests that are answered together; `prompt_R` says which of the `prompts` (of an adapter) each continues."""

    prompts: list[tuple[int, ...]] = field(default_factory=list)
    adapters: list[str] = field(default_factory=list)
    prompt_R: list[int] = field(default_factory=list)
    tickets_R: list[int] = field(default_factory=list)
    requests_R: list[Request] = field(default_factory=list)
    policies_R: list[Any] = field(default_factory=list)
    tokens: int = 0
    room: int = 0
    """The tokens that one prompt's completions may come to, at most."""

    def add(
        self, adapter: str, prompt: tuple[int, ...], members: Sequence[tuple[int, Any, Request]], room: int
    ) -> None:
        self.prompt_R += [len(self.prompts)] * len(members)
        self.prompts.append(prompt)
        self.adapters.append(adapter)
        self.tickets_R += [ticket for ticket, _, _ in members]
        self.policies_R += [policy for _, policy, _ in members]
        self.requests_R += [request for _, _, request in members]
        self.tokens += len(prompt) + room
        self.room = max(self.room, room)


class Pending(threading.local):
    """What the thread that looks has asked for and not yet got: (ticket, policy, request)."""

    def __init__(self):
        self.asked: list[tuple[int, Any, Request]] = []


class TorchEngine:
    """Serves the policies of one model (one, or the adapters of one base). Answers all that is pending at `ready`, in
    batches of what the thread that calls has asked for: what another one asks never moves a draw by float noise.

    `budget`: tokens (prompts and completions at full length) that are sampled at once.
    """

    streams = False

    def __init__(self, model, budget: int):
        self.model, self.budget = model, budget
        self._pending, self._tickets = Pending(), count()
        self._uniforms = Uniforms()
        # Small models say the same again and again, and a tokenizer is slow to read.
        self._text = lru_cache(2**16)(lambda ids: self.model.tokenizer.decode(ids, skip_special_tokens=True))

    def submit(self, policy, requests: Sequence[Request]) -> list[int]:
        """Queue requests; returns a ticket for each. Raises PolicyError where one does not fit the context."""
        for request in requests:
            check_fit(policy, request)
        tickets = [next(self._tickets) for _ in requests]
        self._pending.asked += [(ticket, policy, request) for ticket, request in zip(tickets, requests, strict=True)]
        return tickets

    def ready(self) -> list[tuple[int, Completion]]:
        """Answers everything that this thread has asked for, as (ticket, completion)."""
        pending, self._pending.asked = self._pending.asked, []
        return self._answer(pending)

    def cancel(self, tickets: Iterable[int]) -> None:
        """Forgets requests that nobody waits for any more."""
        gone = set(tickets)
        self._pending.asked = [entry for entry in self._pending.asked if entry[0] not in gone]

    def publish(self, policy) -> None:
        """Nothing to do: it samples from the very weights that are trained."""

    def rest(self) -> None:
        """Nothing to do: it holds no memory of its own."""

    def sample(self, policy, requests: Sequence[Request]) -> list[Completion]:
        """Answers these requests now, in order; what others have queued stays queued."""
        for request in requests:
            check_fit(policy, request)
        answers = dict(self._answer([(i, policy, request) for i, request in enumerate(requests)]))
        return [answers[i] for i in range(len(requests))]

    def _answer(self, pending) -> list[tuple[int, Completion]]:
        answers: list[tuple[int, Completion]] = []
        with alone([policy for _, policy, _ in pending]):
            if self.model.net.training:
                self.model.net.eval()
            for chunk in self._chunks(pending):
                answers += zip(chunk.tickets_R, self._complete(chunk), strict=True)
        return answers

    def _chunks(self, pending) -> Iterator[Chunk]:
        """Requests of one (adapter, prompt) together, adapters in a row, like lengths side by side."""
        groups: dict[tuple, list] = {}
        for ticket, policy, request in pending:
            groups.setdefault((policy.adapter or "", tuple(request.prompt_ids)), []).append((ticket, policy, request))
        chunk = Chunk()
        for (adapter, prompt), members in sorted(groups.items(), key=lambda g: (g[0][0], len(g[0][1]))):
            room = sum(request.max_tokens for _, _, request in members)
            if chunk.prompts and chunk.tokens + len(prompt) + room > self.budget:
                yield chunk
                chunk = Chunk()
            chunk.add(adapter, prompt, members, room)
        if chunk.prompts:
            yield chunk

    @torch.inference_mode()
    def _complete(self, chunk: Chunk) -> list[Completion]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.model.computing())
            decoder = self._decoder(chunk, stack)
            ids_RT, logprobs_RT, lengths_R, finish_R = self._decode(decoder, chunk)
        completions = []
        for row, length in enumerate(lengths_R):
            ids = tuple(ids_RT[row, :length].tolist())
            logprobs = tuple(logprobs_RT[row, :length].tolist())
            completions.append(Completion(ids, logprobs, self._text(ids), finish_R[row]))
        return completions

    def _decoder(self, chunk: Chunk, stack: contextlib.ExitStack) -> TreeDecoder | RowDecoder:
        """What computes this chunk's logits; each adapter speaks for its own rows until `stack` is left."""
        model, slices = self.model, None
        if model.peft is not None:
            slices = Slices(axis=1 if model.by_tree else 0)
            stack.enter_context(mixing(model.net, slices))
        make = partial(TreeDecoder, cost=model.cost) if model.by_tree else RowDecoder
        return make(model.net, chunk.prompts, chunk.adapters, slices, chunk.room)

    def _decode(self, decoder: TreeDecoder | RowDecoder, chunk: Chunk):
        """Draws token after token; returns ids and log-probabilities (R, T), lengths (R,), and why each ended (R,)."""
        eos = np.array(sorted(self.model.eos_ids()))
        most_R = np.array([request.max_tokens for request in chunk.requests_R])
        temperature_R = np.array([request.temperature for request in chunk.requests_R], np.float32)
        uniform_RT = self._uniforms(chunk.requests_R, most_R.max())
        ids_RT, logprobs_RT = np.zeros(uniform_RT.shape, np.int64), np.zeros(uniform_RT.shape)
        lengths_R, finish_R = most_R.copy(), ["length"] * len(most_R)
        cut_R = Cut(chunk.requests_R)
        live, node_R, logits_MV = np.arange(len(most_R)), np.array(chunk.prompt_R), decoder.prefill()
        for step in range(uniform_RT.shape[1]):
            ids, logprobs = draw(logits_MV, node_R, temperature_R[live], uniform_RT[live, step], cut_R[live])
            require_drawn(logprobs, chunk.policies_R, live)
            ids_RT[live, step], logprobs_RT[live, step] = ids, logprobs
            ended = np.isin(ids, eos)
            for place in np.flatnonzero(ended):
                finish_R[live[place]] = "eos"
            for place in self._stopped(chunk, live, ended, ids_RT[:, : step + 1]):
                finish_R[live[place]], ended[place] = "stop", True
            lengths_R[live[ended]] = step + 1
            on = ~ended & (step + 1 < most_R[live])
            if not on.any():
                break
            live = live[on]
            # Candidates of one node that drew the same token are one node of the next step.
            vocabulary = logits_MV.shape[1]
            branches, node_R = np.unique(node_R[on] * vocabulary + ids[on], return_inverse=True)
            logits_MV = decoder.extend(branches // vocabulary, branches % vocabulary)
        return ids_RT, logprobs_RT, lengths_R, finish_R

    def _stopped(self, chunk: Chunk, live: np.ndarray, ended: np.ndarray, ids_RT: np.ndarray) -> list[int]:
        """The places in `live` whose text now holds one of the strings that its request stops at."""
        asked = [(place, chunk.requests_R[row].stop, ids_RT[row]) for place, row in enumerate(live) if not ended[place]]
        return [place for place, stop, ids_T in asked if stop and self._holds(ids_T, stop)]

    def _holds(self, ids_T: np.ndarray, stop: Sequence[str]) -> bool:
        """Is there one of `stop` in the last few tokens? A character is at most four of them."""
        window = 4 * max(map(len, stop)) + 4
        text = self.model.tokenizer.decode(ids_T[-window:].tolist(), skip_special_tokens=True)
        return any(one in text for one in stop)


class Uniforms:
    """Uniform numbers in [0, 1): a request's seed alone decides its own (Philox, a counter-based generator)."""

    def __init__(self):
        self._bits = np.random.Philox(key=0)
        self._start = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def __call__(self, requests_R: Sequence[Request], most: int) -> np.ndarray:
        """(R, most), zero beyond a request's max_tokens."""
        uniform_RT = np.zeros((len(requests_R), most))
        for uniform_T, request in zip(uniform_RT, requests_R, strict=True):
            # Setting the key of one generator is ten times faster than making one per request.
            self._start["state"]["key"][:] = request.seed % 2**64, 0
            self._bits.state = self._start
            uniform_T[: request.max_tokens] = self._generator.random(request.max_tokens)
        return uniform_RT


@dataclass(frozen=True)
class Cut:
    """Which tokens each request leaves out: those after its `top_k` likeliest, and of those that are left the ones
    after the likeliest that have `top_p` of the probability."""

    requests_R: Sequence[Request]

    def __getitem__(self, live: np.ndarray) -> "Cut":
        return Cut([self.requests_R[row] for row in live])

    def __call__(self, logprobs_RV: torch.Tensor) -> torch.Tensor:
        """The log-probabilities of what is left, -inf for the others; untouched where a request leaves out nothing."""
        rows = [row for row, one in enumerate(self.requests_R) if one.is_cut]
        if not rows:
            return logprobs_RV
        chosen = [self.requests_R[row] for row in rows]
        device, size = logprobs_RV.device, logprobs_RV.shape[1]
        top_k_R1 = torch.tensor([[one.top_k or size] for one in chosen], device=device)
        top_p_R1 = torch.tensor([[one.top_p if one.top_p < 1 else 2.0] for one in chosen], device=device)
        sorted_RV, order_RV = logprobs_RV[rows].sort(dim=-1, descending=True, stable=True)
        beyond_RV = torch.arange(size, device=device)[None] >= top_k_R1
        kept_RV = sorted_RV.masked_fill(beyond_RV, -torch.inf).log_softmax(-1)
        before_RV = kept_RV.exp().cumsum(-1) - kept_RV.exp()
        kept_RV = kept_RV.masked_fill(before_RV >= top_p_R1, -torch.inf).log_softmax(-1)
        cut_RV = logprobs_RV.clone()
        cut_RV[rows] = torch.empty_like(kept_RV).scatter_(-1, order_RV, kept_RV)
        return cut_RV


def draw(logits_MV: torch.Tensor, node_R: np.ndarray, temperature_R: np.ndarray, uniform_R: np.ndarray, cut_R: Cut):
    """One token per request from its node's distribution at its temperature (0: the likeliest, log-probability 0).

    Returns (ids_R, logprobs_R) as arrays, NaN where the logits are not finite. Inverts the cumulative distribution,
    summed in float64.
    """
    device = logits_MV.device
    greedy_R = temperature_R == 0
    scale_R = torch.from_numpy(np.where(greedy_R, np.float32(1), temperature_R)).to(device)
    logits_RV = logits_MV.index_select(0, torch.from_numpy(node_R).to(device)).float()
    logprobs_RV = cut_R(torch.log_softmax(logits_RV / scale_R[:, None], -1))
    upto_RV = logprobs_RV.exp().cumsum(-1, dtype=torch.float64)
    level_R1 = torch.from_numpy(uniform_R).to(device)[:, None] * upto_RV[:, -1:]
    ids_R1 = torch.searchsorted(upto_RV, level_R1, right=True).clamp(max=upto_RV.shape[1] - 1)
    logprobs_R = logprobs_RV.gather(1, ids_R1)[:, 0].cpu().numpy()
    ids_R = ids_R1[:, 0].cpu().numpy()
    if greedy_R.any():
        ids_R = np.where(greedy_R, logits_RV.argmax(-1).cpu().numpy(), ids_R)
        logprobs_R = np.where(greedy_R & np.isfinite(logprobs_R), 0.0, logprobs_R)
    return ids_R, logprobs_R
