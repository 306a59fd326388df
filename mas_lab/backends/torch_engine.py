"""The sampler: all pending requests at once, each distinct prefix through the model once.

Requests of every policy that the engine serves are answered together: distinct prompts are prefilled once, candidates
that have said the same so far are one node of a tree, finished ones leave. A request's seed alone gives its uniform
numbers and each token is drawn by inverting the cumulative distribution in float64, so that a draw does not depend
(beyond float noise) on who else is in the batch. Leaves out: top-p, top-k and the like.

Shapes: G distinct prompts; R requests; M distinct live nodes, at most R; V vocabulary.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from mas_lab.backends.decoders import RowDecoder, TreeDecoder
from mas_lab.backends.mixed_lora import Slices, mixing
from mas_lab.policy import Completion, PolicyError, Request


@dataclass
class Draft:
    """One request while it is being answered."""

    ticket: int
    request: Request
    prompt: int
    uniforms: np.ndarray
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = ""


class TorchEngine:
    """Serves the policies of one model (one, or the adapters of one base). Answers all that is pending at `ready`.

    `budget`: tokens (prompts and completions at full length) that are sampled at once.
    """

    streams = False

    def __init__(self, model, budget: int):
        self.model, self.budget = model, budget
        self._pending: list[tuple[int, object, Request]] = []
        self._tickets = 0
        self._uniforms = Uniforms()

    def submit(self, policy, requests: Sequence[Request]) -> list[int]:
        """Queue requests; returns a ticket for each. Raises PolicyError where one does not fit the context."""
        for request in requests:
            self._check(policy, request)
        tickets = list(range(self._tickets, self._tickets + len(requests)))
        self._tickets += len(requests)
        self._pending += [(ticket, policy, request) for ticket, request in zip(tickets, requests, strict=True)]
        return tickets

    def ready(self) -> list[tuple[int, Completion]]:
        """Answers everything pending, as (ticket, completion)."""
        pending, self._pending = self._pending, []
        return self._answer(pending)

    def sample(self, policy, requests: Sequence[Request]) -> list[Completion]:
        """Answers these requests now, in order; what others have queued stays queued."""
        for request in requests:
            self._check(policy, request)
        answers = dict(self._answer([(i, policy, request) for i, request in enumerate(requests)]))
        return [answers[i] for i in range(len(requests))]

    def _check(self, policy, request: Request) -> None:
        prompt, more = len(request.prompt_ids), request.max_tokens
        if prompt == 0 or more < 1:
            raise PolicyError(f"policy {policy.name!r}: {prompt} prompt tokens and max_tokens {more}; both must be ≥ 1")
        if prompt + more > self.model.context:
            raise PolicyError(
                f"policy {policy.name!r}: {prompt} prompt tokens + max_tokens {more} = {prompt + more} exceed the "
                f"context of {self.model.context} tokens; shorten the observation or lower max_tokens"
            )

    def _answer(self, pending) -> list[tuple[int, Completion]]:
        answers: list[tuple[int, Completion]] = []
        if self.model.net.training:
            self.model.net.eval()
        for chunk in self._chunks(pending):
            answers += [(draft.ticket, self._completion(draft)) for draft in self._decode(*chunk)]
        return answers

    def _chunks(self, pending):
        """Requests grouped by (adapter, prompt), like lengths together, as (prompts, adapters, drafts) per chunk."""
        groups: dict[tuple, list] = {}
        for ticket, policy, request in pending:
            groups.setdefault((policy.adapter or "", request.prompt_ids), []).append((ticket, request))
        prompts, adapters, drafts, used = [], [], [], 0
        for (adapter, prompt), members in sorted(groups.items(), key=lambda g: (g[0][0], len(g[0][1]))):
            size = len(prompt) + sum(request.max_tokens for _, request in members)
            if prompts and used + size > self.budget:
                yield prompts, adapters, drafts
                prompts, adapters, drafts, used = [], [], [], 0
            drafts += [Draft(t, request, len(prompts), self._uniforms(request)) for t, request in members]
            prompts.append(prompt)
            adapters.append(adapter)
            used += size
        if prompts:
            yield prompts, adapters, drafts

    @torch.inference_mode()
    def _decode(self, prompts, adapters, drafts: list[Draft]) -> list[Draft]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.model.computing())
            slices = None
            if self.model.peft is not None:
                slices = Slices(axis=1 if self.model.by_tree else 0)
                stack.enter_context(mixing(self.model.net, slices))
            decoder = (TreeDecoder if self.model.by_tree else RowDecoder)(self.model.net, prompts, adapters, slices)
            self._run(decoder, drafts)
        return drafts

    def _run(self, decoder, drafts: list[Draft]) -> None:
        eos = self.model.eos_ids()
        logits_MV = decoder.prefill()
        live = list(drafts)
        node_R = np.array([draft.prompt for draft in live])
        step = 0
        while True:
            ids_R, logprobs_R = draw(logits_MV, node_R, live, step)
            step += 1
            for draft, token, logprob in zip(live, ids_R.tolist(), logprobs_R.tolist(), strict=True):
                draft.ids.append(token)
                draft.logprobs.append(logprob)
                draft.finish = "eos" if token in eos else "length" if step == draft.request.max_tokens else ""
            on_R = np.array([not draft.finish for draft in live])
            if not on_R.any():
                return
            live = [draft for draft in live if not draft.finish]
            branches = np.stack([node_R[on_R], ids_R[on_R]], 1)
            (parent_M, ids_M), node_R = _distinct(branches)
            logits_MV = decoder.extend(parent_M, ids_M)

    def _completion(self, draft: Draft) -> Completion:
        text = self.model.tokenizer.decode(draft.ids, skip_special_tokens=True)
        return Completion(tuple(draft.ids), tuple(draft.logprobs), text, draft.finish)


def _distinct(branches_R2: np.ndarray):
    distinct_M2, node_R = np.unique(branches_R2, axis=0, return_inverse=True)
    return distinct_M2.T, node_R.reshape(-1)


class Uniforms:
    """The uniform numbers in [0, 1) of one request: its seed alone decides them (Philox, counter-based)."""

    def __init__(self):
        self._bits = np.random.Philox(key=0)
        self._start = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def __call__(self, request: Request) -> np.ndarray:
        # Setting the key of one generator is ten times faster than making one per request.
        self._start["state"]["key"][:] = request.seed % 2**64, 0
        self._bits.state = self._start
        return self._generator.random(request.max_tokens)


def draw(logits_MV: torch.Tensor, node_R: np.ndarray, live: Sequence[Draft], step: int):
    """One token per live request from its node's distribution at its temperature (0: the likeliest, log-probability 0).

    Returns (ids_R, logprobs_R) as arrays. Inverts the cumulative distribution in float64.
    """
    device = logits_MV.device
    temperature_R = torch.tensor([draft.request.temperature for draft in live], dtype=torch.float64, device=device)
    uniform_R = torch.tensor([draft.uniforms[step] for draft in live], dtype=torch.float64, device=device)
    greedy_R = temperature_R == 0
    logits_RV = logits_MV.index_select(0, torch.from_numpy(node_R).to(device)).double()
    logprobs_RV = torch.log_softmax(logits_RV / temperature_R.masked_fill(greedy_R, 1.0)[:, None], -1)
    upto_RV = logprobs_RV.exp().cumsum(-1)
    ids_R = torch.searchsorted(upto_RV, uniform_R[:, None] * upto_RV[:, -1:], right=True)[:, 0]
    ids_R = torch.where(greedy_R, logits_RV.argmax(-1), ids_R.clamp(max=logits_RV.shape[1] - 1))
    logprobs_R = logprobs_RV.gather(1, ids_R[:, None])[:, 0].masked_fill(greedy_R, 0.0)
    return ids_R.cpu().numpy(), logprobs_R.cpu().numpy()
