"""Sample all pending requests at once; each distinct prefix goes through the model once.

The engine answers the requests of all its policies together. Each distinct prompt is prefilled once. Candidates with
equal tokens so far are one node of a tree, and finished candidates leave the batch. A request's uniform numbers depend
on its seed alone, and each token is drawn by inverting the cumulative distribution. So a draw does not depend on the
other requests of its batch, beyond float noise. Leaves out: penalties and beams.

Shapes: G distinct prompts; R requests; M distinct live nodes, at most R; V vocabulary.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch

from mas_lab.backends.torch.fast.decoders import TreeDecoder
from mas_lab.backends.torch.fast.mixed_lora import Slices, mixing
from mas_lab.backends.torch.padded import TopKTopP, Uniforms, sample_from_logits
from mas_lab.policy import Asked, Completion, WaveEngine


class Chunk:
    """Requests that are answered together; `prompt_R` is the index in `prompts` (and `adapters`) of each request."""

    def __init__(self, places: dict[tuple[str, tuple[int, ...]], list[int]], asked: Sequence[Asked]):
        """Take the places in `asked` by adapter and prompt."""
        self.adapters, self.prompts = ([key[i] for key in places] for i in (0, 1))
        self.places_R = [place for own in places.values() for place in own]
        self.policies_R, self.requests_R = ([asked[place][i] for place in self.places_R] for i in (0, 1))
        self.prompt_R = np.repeat(np.arange(len(places)), [len(own) for own in places.values()])
        self.room = max(sum(asked[place][1].max_tokens for place in own) for own in places.values())
        """Maximal number of tokens of all completions of one prompt."""


class TreeEngine(WaveEngine):
    """An engine that answers requests in batches of about `sample_tokens` tokens, completions at full length."""

    def __init__(self, model):
        super().__init__()
        self.model, self._uniforms = model, Uniforms()
        # A cache, because small models repeat themselves and decoding is slow.
        self._text = lru_cache(2**16)(lambda ids: self.model.tokenizer.decode(ids, skip_special_tokens=True))

    def complete(self, asked: Sequence[Asked]) -> list[Completion]:
        """Return a completion per (policy, request), in order."""
        if self.model.net.training:
            self.model.net.eval()
        answers: dict[int, Completion] = {}
        for chunk in self._chunks(asked):
            answers |= dict(zip(chunk.places_R, self._complete(chunk), strict=True))
        return [answers[place] for place in range(len(asked))]

    def _chunks(self, asked: Sequence[Asked]) -> Iterator[Chunk]:
        """Yield chunks of the requests, by adapter and prompt, sorted by adapter and prompt length."""
        groups: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for place, (policy, request) in enumerate(asked):
            groups.setdefault((policy.adapter or "", tuple(request.prompt_ids)), []).append(place)
        chunk, tokens = {}, 0
        for (adapter, prompt), own in sorted(groups.items(), key=lambda g: (g[0][0], len(g[0][1]))):
            size = len(prompt) + sum(asked[place][1].max_tokens for place in own)
            if chunk and tokens + size > self.model.options.sample_tokens:
                yield Chunk(chunk, asked)
                chunk, tokens = {}, 0
            chunk[adapter, prompt] = own
            tokens += size
        if chunk:
            yield Chunk(chunk, asked)

    @torch.inference_mode()
    def _complete(self, chunk: Chunk) -> list[Completion]:
        model, slices = self.model, None if self.model.peft is None else Slices()
        with model.computing(), contextlib.nullcontext() if slices is None else mixing(model.net, slices):
            decoder = TreeDecoder(model.net, chunk.prompts, chunk.adapters, slices, chunk.room, model.cost)
            ids_RT, logprobs_RT, lengths_R, finish_R = self._decode(decoder, chunk)
        completions = []
        for row, length in enumerate(lengths_R):
            ids = tuple(ids_RT[row, :length].tolist())
            logprobs = tuple(logprobs_RT[row, :length].tolist())
            completions.append(Completion(ids, logprobs, self._text(ids), finish_R[row]))
        return completions

    def _decode(self, decoder: TreeDecoder, chunk: Chunk):
        """Draw token after token; return ids and log-probabilities (R, T), lengths (R,) and finish reasons (R,)."""
        eos = np.array(sorted(self.model.eos_ids()))
        most_R = np.array([request.max_tokens for request in chunk.requests_R])
        temperature_R = np.array([request.temperature for request in chunk.requests_R], np.float32)
        uniform_RT = self._uniforms(chunk.requests_R, most_R.max())
        ids_RT, logprobs_RT = np.zeros(uniform_RT.shape, np.int64), np.zeros(uniform_RT.shape)
        lengths_R, finish_R = most_R.copy(), ["length"] * len(most_R)
        cut_R = TopKTopP(chunk.requests_R)
        live, node_R, logits_MV = np.arange(len(most_R)), chunk.prompt_R, decoder.prefill()
        for step in range(uniform_RT.shape[1]):
            ids, logprobs = sample_from_logits(
                logits_MV, node_R, temperature_R[live], uniform_RT[live, step], cut_R[live]
            )
            self.model.require_drawn(logprobs, chunk.policies_R, live)
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
            # Candidates that share a node and drew the same token share a node in the next step.
            vocabulary = logits_MV.shape[1]
            branches, node_R = np.unique(node_R[on] * vocabulary + ids[on], return_inverse=True)
            logits_MV = decoder.extend(branches // vocabulary, branches % vocabulary)
        return ids_RT, logprobs_RT, lengths_R, finish_R

    def _stopped(self, chunk: Chunk, live: np.ndarray, ended: np.ndarray, ids_RT: np.ndarray) -> list[int]:
        """Return the places in `live` whose text now contains a stop text of the request."""
        asked = [(place, chunk.requests_R[row].stop, ids_RT[row]) for place, row in enumerate(live) if not ended[place]]
        return [place for place, stop, ids_T in asked if stop and self._holds(ids_T, stop)]

    def _holds(self, ids_T: np.ndarray, stop: Sequence[str]) -> bool:
        """Return True if one of `stop` is in the last few tokens; a character is at most four tokens."""
        window = 4 * max(map(len, stop)) + 4
        text = self.model.tokenizer.decode(ids_T[-window:].tolist(), skip_special_tokens=True)
        return any(one in text for one in stop)
