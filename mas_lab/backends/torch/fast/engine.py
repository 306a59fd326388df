"""Sample all pending requests at once; each distinct prefix goes through the model once.

The engine answers the requests of all its policies together. Each distinct prompt is prefilled once. Candidates with
equal tokens so far are one node of a tree, and finished candidates leave the batch. A request's uniform numbers depend
on its seed alone, and each token is drawn by inverting the cumulative distribution. So a draw does not depend on the
other requests of its batch, beyond float noise. Leaves out: penalties and beams.

Shapes: G distinct prompts; R requests; M distinct live nodes, at most R; V vocabulary.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch

from mas_lab.backends.torch.fast.decoders import TreeDecoder
from mas_lab.backends.torch.fast.fused import FusedForward
from mas_lab.backends.torch.fast.mixed_lora import Slices, mixing
from mas_lab.backends.torch.fast.tree_attention import forward as run
from mas_lab.backends.torch.padded import (
    DRAWN_AT_ONCE,
    LARGE_LOGITS,
    PaddedEngine,
    TopKTopP,
    ends_in,
    sample_from_logits,
    uniforms,
)
from mas_lab.policy import Asked, Completion


class TreeEngine(PaddedEngine):
    """An engine that answers the requests of all adapters together, in batches of about `sample_tokens` tokens."""

    def _batches(self, asked: Sequence[Asked]) -> Iterator[list[int]]:
        """Yield the places of requests by adapter and prompt, sorted by batch class, adapter and prompt length."""
        most = DRAWN_AT_ONCE * LARGE_LOGITS // self.model.net.config.get_text_config().vocab_size
        groups: dict[tuple, list[int]] = {}
        for place, one in enumerate(asked):
            groups.setdefault((self.batch_class(one), *_key(one)), []).append(place)
        batch, tokens, last = [], 0, None
        for key, own in sorted(groups.items(), key=lambda group: (*group[0][:2], len(group[0][2]))):
            kind = key[0] if self.model.ways.mixed else key[:2]
            size = len(key[2]) + sum(asked[place][1].max_tokens for place in own)
            full = tokens + size > self.model.options.sample_tokens or len(batch + own) > most
            if batch and (full or kind != last):
                yield batch
                batch, tokens = [], 0
            batch, tokens, last = batch + own, tokens + size, kind
        if batch:
            yield batch

    def _sample(self, asked: Sequence[Asked]) -> list[Completion]:
        model, slices = self.model, Slices() if self.model.peft is not None and self.model.ways.mixed else None
        prompts = {key: number for number, key in enumerate(dict.fromkeys(map(_key, asked)))}
        prompt_R = np.array([prompts[_key(one)] for one in asked])
        room = int(np.bincount(prompt_R, [request.max_tokens for _, request in asked]).max())
        adapters, ids = zip(*prompts, strict=True)
        with model.computing(), contextlib.nullcontext() if slices is None else mixing(model.net, slices):
            forward = FusedForward(model.net) if model.ways.fused else partial(run, model.net, model.net.config)
            decoder = TreeDecoder(forward, ids, adapters, slices, room, model.cost, model.device)
            ids_RT, logprobs_RT, lengths_R, finish_R = self._decode(decoder, decoder.prefill(), asked, prompt_R)
        return [
            self.completion(ids_T[:length].tolist(), logprobs_T[:length].tolist(), finish)
            for ids_T, logprobs_T, length, finish in zip(ids_RT, logprobs_RT, lengths_R, finish_R, strict=True)
        ]

    def _decode(self, decoder: TreeDecoder, logits_MV: torch.Tensor, asked: Sequence[Asked], node_R: np.ndarray):
        """Draw token after token from the logits of the prompts, where `node_R` is the prompt of each request.

        Returns ids and log-probabilities (R, T), lengths (R,) and finish reasons (R,).
        """
        policies_R, requests_R = zip(*asked, strict=True)
        eos = np.array(sorted(self.model.eos_ids()))
        most_R = np.array([request.max_tokens for request in requests_R])
        temperature_R = np.array([request.temperature for request in requests_R], np.float32)
        uniform_RT = uniforms(requests_R)
        ids_RT, logprobs_RT = np.zeros(uniform_RT.shape, np.int64), np.zeros(uniform_RT.shape)
        lengths_R, finish_R = most_R.copy(), ["length"] * len(most_R)
        cut_R = TopKTopP(requests_R)
        live = np.arange(len(most_R))
        for step in range(uniform_RT.shape[1]):
            ids, logprobs = sample_from_logits(
                logits_MV, node_R, temperature_R[live], uniform_RT[live, step], cut_R[live]
            )
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
        return ids_RT, logprobs_RT, lengths_R, finish_R


def _key(one: Asked) -> tuple[str, tuple[int, ...]]:
    """Return the adapter and the prompt of a request."""
    policy, request = one
    return policy.adapter or "", tuple(request.prompt_ids)
