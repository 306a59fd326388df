"""Log-probabilities of sampled tokens, with gradients, at the least cost.

Samples of one prompt are packed as a tree: the prompt once, and each distinct beginning of its completions once. Where
one row per sample counts fewer operations (long completions), or where a model's attention cannot follow trees, rows
are padded instead; the numbers are the same. Only positions that predict a sampled token reach the output embedding.
Leaves out: what is done with the log-probabilities (`policy`) and the attention itself (`tree_attention`).

Shapes: M tokens in a micro-batch; U distinct predicting positions; V vocabulary; N sampled tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from mas_lab.backends.torch import tree_attention
from mas_lab.backends.torch.forward_mode import in_forward_mode
from mas_lab.policy import PolicyError, Sample

PACKINGS = ("auto", "packed", "padded")
LARGE_LOGITS = 2**25
"""Logits (U * V) from which on they are made in chunks and made again for the backward pass."""


@dataclass
class Tree:
    """A prompt and the distinct beginnings of its completions. Node i comes after its parent; a chain is a tree."""

    ids: list[int]
    parents: list[int]
    predictors: list[list[int]]
    """Per sample: the node that predicts each of its completion's tokens."""
    tokens: list[np.ndarray]
    """Per sample: where its tokens stand among the N tokens of all samples."""
    temperature: float

    def __len__(self) -> int:
        return len(self.ids)

    def visible(self) -> np.ndarray:
        """(L, L) true where a node sees another: its ancestors and itself."""
        seen_LL = np.eye(len(self), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                seen_LL[node, :node] = seen_LL[parent, :node]
        return seen_LL

    def positions(self) -> np.ndarray:
        at_L = np.zeros(len(self), np.int64)
        for node, parent in enumerate(self.parents[1:], 1):
            at_L[node] = at_L[parent] + 1
        return at_L


def grow(prompt_ids: Sequence[int], completions: Sequence[Sequence[int]], tokens: list, temperature: float) -> Tree:
    """The tree of one prompt and its completions. A completion's last token predicts nothing, so it is no node."""
    ids, predictors = list(prompt_ids), []
    parents = list(range(-1, len(ids) - 1))
    children: dict[tuple[int, int], int] = {}
    for completion in completions:
        node, path = len(prompt_ids) - 1, []
        for depth, token in enumerate(completion):
            path.append(node)
            if depth == len(completion) - 1:
                break
            if (node, token) not in children:
                children[node, token] = len(ids)
                ids.append(token)
                parents.append(node)
            node = children[node, token]
        predictors.append(path)
    return Tree(ids, parents, predictors, tokens, temperature)


@dataclass(frozen=True)
class Cost:
    """Operations per forward pass: `linear` per token and `attention` per pair of query and key."""

    linear: float
    attention: float

    @classmethod
    def of(cls, net) -> "Cost":
        config = net.config.get_text_config()
        weights = sum(p.numel() for p in net.parameters()) - net.get_input_embeddings().weight.numel()
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(2.0 * weights, 4.0 * config.num_hidden_layers * config.num_attention_heads * head)

    def __call__(self, length: int) -> float:
        return length * (self.linear + length * self.attention)


def plant(samples: Sequence[Sample], packing: str, cost: Cost) -> list[Tree]:
    """The trees of all samples, one per distinct (prompt, temperature), or one per sample where that is cheaper."""
    groups: dict[tuple, list[int]] = {}
    ends = np.cumsum([len(s.completion_ids) for s in samples])
    tokens = [np.arange(end - len(s.completion_ids), end) for s, end in zip(samples, ends, strict=True)]
    for i, sample in enumerate(samples):
        if sample.temperature <= 0:
            raise PolicyError(f"sample {i} was drawn greedily (temperature {sample.temperature}): nothing to train on")
        if not len(sample.prompt_ids) or not len(sample.completion_ids):
            raise PolicyError(f"sample {i} has an empty prompt or an empty completion")
        groups.setdefault((tuple(sample.prompt_ids), sample.temperature), []).append(i)
    trees = []
    for (prompt, temperature), members in groups.items():
        completions = [samples[i].completion_ids for i in members]
        tree = grow(prompt, completions, [tokens[i] for i in members], temperature)
        rows = sum(cost(len(prompt) + len(c) - 1) for c in completions)
        if packing == "packed" or (packing == "auto" and cost(len(tree)) <= rows):
            trees.append(tree)
        else:
            trees += [grow(prompt, [c], [tokens[i]], temperature) for c, i in zip(completions, members, strict=True)]
    return trees


def micro_batches(trees: Sequence[Tree], budget: int) -> Iterator[list[Tree]]:
    """Trees of like length together, at most `budget` tokens (padding counted) at a time, but at least one tree."""
    batch: list[Tree] = []
    for tree in sorted(trees, key=len, reverse=True):
        if batch and len(batch[0]) * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(tree)
    if batch:
        yield batch


class MicroBatch:
    """Trees as tensors. `token_N` says which of all tokens these are, `row_N` to which sample each belongs, numbered
    from 0 within the micro-batch: a tree holds whole samples, so none is cut. Token n was predicted at place
    `from_N[n]` of the U distinct predicting positions, whose distributions have `temperature_U`."""

    def __init__(self, trees: Sequence[Tree], ids_of_all: np.ndarray, device, by_tree: bool):
        self.trees, self.by_tree, self.device = trees, by_tree, device
        longest = max(map(len, trees))
        starts = np.cumsum([0] + [len(t) for t in trees])
        offset = starts if by_tree else longest * np.arange(len(trees))
        nodes = [offset[i] + np.array(path) for i, t in enumerate(trees) for path in t.predictors]
        keep_U, from_N = np.unique(np.concatenate(nodes), return_inverse=True)
        tree_U = np.searchsorted(offset[: len(trees)], keep_U, side="right") - 1
        samples = [token for t in trees for token in t.tokens]
        self.token_N = np.concatenate(samples)
        self.row_N = self._put(np.repeat(np.arange(len(samples)), [len(token) for token in samples]))
        self.keep_U, self.from_N = self._put(keep_U), self._put(from_N)
        self.id_N = self._put(ids_of_all[self.token_N])
        self.temperature_U = self._put(np.array([t.temperature for t in trees], np.float32)[tree_U])
        at_PQ, ids_PQ = np.zeros((2, len(trees), longest), np.int64)
        for i, tree in enumerate(trees):
            ids_PQ[i, : len(tree)], at_PQ[i, : len(tree)] = tree.ids, tree.positions()
        real_PQ = np.arange(longest) < np.diff(starts)[:, None]
        if by_tree:
            self._lay_out(at_PQ, ids_PQ, real_PQ, starts)
        else:
            self.inputs = {"input_ids": ids_PQ, "attention_mask": real_PQ.astype(np.int64), "position_ids": at_PQ}
            self.inputs = {name: self._put(values) for name, values in self.inputs.items()}

    def _lay_out(self, at_PQ, ids_PQ, real_PQ, starts):
        grid_PQ = np.where(real_PQ, starts[:-1, None] + np.arange(real_PQ.shape[1]), 0)
        visible_PQQ = np.zeros((*real_PQ.shape, real_PQ.shape[1]), bool)
        visible_PQQ[:, :, 0] = True
        for seen_QQ, tree in zip(visible_PQQ, self.trees, strict=True):
            seen_QQ[: len(tree), : len(tree)] = tree.visible()
        at = self._put(at_PQ)
        self.ids_M, self.at_M = self._put(ids_PQ[real_PQ]), self._put(at_PQ[real_PQ])
        self.layout = tree_attention.Layout(
            self._put(grid_PQ), self._put(np.flatnonzero(real_PQ)), self._put(visible_PQQ), at, at
        )

    def _put(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def logits(self, net, call) -> torch.Tensor:
        """(U, V), made by the model's own head, so that whatever it does to logits is done."""
        if self.by_tree:
            return tree_attention.forward(call, net.config, self.ids_M, self.at_M, self.layout, self.keep_U)
        # The fused kernels have no forward-mode derivative.
        how = "eager" if in_forward_mode() else net.config._attn_implementation
        with tree_attention.attending(net.config, how):
            logits_PQV = call(**self.inputs, use_cache=False).logits
        return logits_PQV.flatten(0, 1).index_select(0, self.keep_U)

    def hidden(self, net) -> torch.Tensor:
        """(U, h), what the output embedding reads."""
        if self.by_tree:
            states = tree_attention.hidden(net, self.ids_M, self.at_M, self.layout)
        else:
            states = net.base_model(**self.inputs, use_cache=False)[0].flatten(0, 1)
        return states.index_select(0, self.keep_U)


def bare_head(net) -> bool:
    """Are the logits nothing but the output embedding of the last hidden state (no cap, no scale)?"""
    config = net.config.get_text_config()
    scaled = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
    return net.get_output_embeddings() is not None and not any(getattr(config, name, None) for name in scaled)


def token_logprobs(net, batch: MicroBatch, entropy_grad: bool, call=None) -> tuple[torch.Tensor, torch.Tensor]:
    """(logprobs_N, entropy_N) in float32, under the temperature each token was sampled at."""
    vocabulary = net.config.get_text_config().vocab_size
    large = len(batch.keep_U) * vocabulary > LARGE_LOGITS
    forward_mode = in_forward_mode()
    if (batch.by_tree and not large) or forward_mode or not bare_head(net):
        return _pick(batch.logits(net, call or net), batch.temperature_U, batch.from_N, batch.id_N, entropy_grad)
    hidden_Uh, head = batch.hidden(net), net.get_output_embeddings()
    if not large:
        return _pick(head(hidden_Uh), batch.temperature_U, batch.from_N, batch.id_N, entropy_grad)
    order_N = torch.argsort(batch.from_N)
    step = max(1, LARGE_LOGITS // vocabulary)
    parts = []
    for start in range(0, len(hidden_Uh), step):
        rows = slice(start, start + step)
        first, last = torch.searchsorted(batch.from_N[order_N], torch.tensor([start, start + step]).to(order_N))
        part_N = order_N[first:last]
        arguments = batch.temperature_U[rows], batch.from_N[part_N] - start, batch.id_N[part_N], entropy_grad
        parts.append(
            checkpoint(lambda h, *rest: _pick(head(h), *rest), hidden_Uh[rows], *arguments, use_reentrant=False)
        )
    logprobs, entropy = (torch.cat(values)[torch.argsort(order_N)] for values in zip(*parts, strict=True))
    return logprobs, entropy


def _pick(logits_UV, temperature_U, from_N, id_N, entropy_grad: bool) -> tuple[torch.Tensor, torch.Tensor]:
    logprobs_UV = torch.log_softmax(logits_UV.float() / temperature_U[:, None], -1)
    known_UV = logprobs_UV if entropy_grad else logprobs_UV.detach()
    entropy_U = -(known_UV.exp() * known_UV).sum(-1)
    return logprobs_UV[from_N, id_N], entropy_U[from_N]
