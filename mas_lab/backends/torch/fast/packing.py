"""Compute the log-probabilities of sampled tokens, with gradients, at the least cost.

Samples are packed as trees: each distinct beginning of a prompt's completions is computed once. A common beginning of
several prompts is computed once too, if that takes fewer operations. If one row per sample takes fewer operations (long
completions), each sample is a tree of its own. The numbers are the same. Only positions that predict a sampled token
reach the output embedding. `ChunkedBatch` has padded rows, for models whose attention cannot follow trees.
Leaves out: the use of the log-probabilities (`policy`) and the attention itself (`tree_attention`).

Shapes: M tokens in a micro-batch; U distinct predicting positions; V vocabulary; N sampled tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from transformers.modeling_outputs import MoeModelOutputWithPast

from mas_lab.backends.torch.fast import tree_attention
from mas_lab.backends.torch.fast.tree_attention import Trie, in_forward_mode, merge_prefixes
from mas_lab.backends.torch.padded import CACHED_LOGITS, LARGE_LOGITS, PaddedBatch, filled
from mas_lab.backends.torch.source import head_size, shape
from mas_lab.policy import Sample


class Tree(Trie):
    """A tree of samples with one temperature and batch class: the distinct beginnings of prompts and completions.

    `predictors` has, for each sample, the node that predicts each token of its completion. `tokens` has, for each
    sample, the places of its tokens among the N tokens of all samples.
    """

    def __init__(self, temperature: float, batch_class: int):
        super().__init__()
        self.temperature, self.batch_class = temperature, batch_class
        self.predictors: list[list[int]] = []
        self.tokens: list[np.ndarray] = []
        self._ends: dict[tuple[int, ...], int] = {}

    def add(self, prompt: tuple[int, ...], completion: Sequence[int], tokens: np.ndarray) -> None:
        """Add a sample. The last token of a completion predicts nothing, so it has no node."""
        if prompt not in self._ends:
            self._ends[prompt] = self.walk(prompt)[-1]
        self.predictors.append(self.walk(completion[:-1], self._ends[prompt]))
        self.tokens.append(tokens)


@dataclass(frozen=True)
class Cost:
    """The operations of a forward pass: `linear` per token and `attention` per pair of query and key."""

    linear: float
    attention: float

    @classmethod
    def of(cls, net) -> "Cost":
        weights = sum(p.numel() for p in net.parameters()) - net.get_input_embeddings().weight.numel()
        layers, heads = shape(net.config, "num_hidden_layers"), shape(net.config, "num_attention_heads")
        return cls(2.0 * weights, 4.0 * layers * heads * head_size(net.config) if heads else 0.0)

    def __call__(self, length: int) -> float:
        return length * (self.linear + length * self.attention)


def pack_prefix_trees(
    samples: Sequence[Sample], packing: str, cost: Cost, budget: int, class_of: Callable[[Sample], int] = lambda _: 0
) -> list[Tree]:
    """Return the trees of all samples.

    A tree has one prompt (at one temperature) and its completions. If it has more than `budget` tokens, it is cut
    between completions, and each part repeats the prompt. If that is cheaper, each sample gets a tree of its own.
    Several prompts that begin alike share a tree if that is no more expensive than a tree for each. Only samples of
    one class share a tree (`TorchModel.class_of`).
    """
    ends = np.cumsum([len(s.completion_ids) for s in samples])
    groups: dict[tuple, list[int]] = {}
    for i, sample in enumerate(samples):
        groups.setdefault(((sample.temperature, class_of(sample)), tuple(sample.prompt_ids)), []).append(i)

    def tree_of(members: Sequence[int]) -> Tree:
        tree = Tree(samples[members[0]].temperature, class_of(samples[members[0]]))
        for i in members:
            completion = samples[i].completion_ids
            tree.add(tuple(samples[i].prompt_ids), completion, np.arange(ends[i] - len(completion), ends[i]))
        return tree

    trees: list[Tree] = []
    packed: dict[tuple[float, int], dict[tuple[int, ...], Tree]] = {}
    for (kind, prompt), members in groups.items():
        tree, lengths = tree_of(members), [len(samples[i].completion_ids) - 1 for i in members]
        parts = (
            [tree] if len(tree) <= budget else [tree_of(part) for part in _cut(members, lengths, budget - len(prompt))]
        )
        rows = sum(cost(len(prompt) + length) for length in lengths)
        if packing != "packed" and (packing != "auto" or sum(cost(len(part)) for part in parts) > rows):
            trees += [tree_of([i]) for i in members]
        elif len(parts) > 1:
            trees += parts
        else:
            packed.setdefault(kind, {})[prompt] = tree
    for kind, alone in packed.items():
        for prompts in merge_prefixes({prompt: len(tree) for prompt, tree in alone.items()}, cost):
            members = [i for prompt in prompts for i in groups[kind, prompt]]
            trees.append(alone[prompts[0]] if len(prompts) == 1 else tree_of(members))
    return trees


def _cut(members: Sequence[int], lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield the members in parts whose lengths add up to at most `budget`, but at least one member each."""
    size = dict(zip(members, lengths, strict=True))
    return filled(members, lambda part, member: sum(size[one] for one in (*part, member)) <= budget)


def packed_batches(samples: Sequence[Sample], model, part: slice = slice(None)) -> Iterator["MicroBatch"]:
    """Yield samples as micro-batches of trees of similar length: of all trees, or of a part of them.

    A micro-batch has at most `train_tokens` tokens, padding counted, but at least one tree.
    """
    budget = model.options.train_tokens
    trees = pack_prefix_trees(samples, model.options.packing, model.cost, budget, model.class_of)

    def fits(batch: list[Tree], tree: Tree) -> bool:
        return tree.batch_class == batch[0].batch_class and len(batch[0]) * (len(batch) + 1) <= budget

    ids_N = np.concatenate([np.asarray(sample.completion_ids, np.int64) for sample in samples])
    for batch in filled(sorted(trees, key=lambda tree: (tree.batch_class, len(tree)), reverse=True)[part], fits):
        yield MicroBatch(batch, ids_N, model.device, model.dtype)


class MicroBatch:
    """Trees as tensors.

    `token_N` holds the places of these tokens among all tokens. `row_N` holds the sample of each token, numbered from 0
    within the micro-batch; a tree holds whole samples, so none is cut. Token n was predicted at place `from_N[n]` of
    the U distinct predicting positions, whose distributions have the temperatures `temperature_U`.
    """

    def __init__(self, trees: Sequence[Tree], ids_of_all: np.ndarray, device: torch.device, dtype: torch.dtype):
        put = lambda values: torch.from_numpy(np.ascontiguousarray(values)).to(device)  # noqa: E731
        self.dtype = dtype
        starts = np.cumsum([0] + [len(t) for t in trees])
        nodes = [starts[i] + np.array(path) for i, t in enumerate(trees) for path in t.predictors]
        keep_U, from_N = np.unique(np.concatenate(nodes), return_inverse=True)
        tree_U = np.searchsorted(starts[:-1], keep_U, side="right") - 1
        samples = [token for t in trees for token in t.tokens]
        self.token_N = np.concatenate(samples)
        self.row_N = put(np.repeat(np.arange(len(samples)), [len(token) for token in samples]))
        self.keep_U, self.from_N, self.id_N = put(keep_U), put(from_N), put(ids_of_all[self.token_N])
        self.temperature_U = put(np.array([t.temperature for t in trees], np.float32)[tree_U])
        self.ids_M, self.at_M, self.layout = tree_attention.laid_out(trees, put)
        if dtype != torch.float32:  # where rows of another width would change the last bits of a run
            self.layout = tree_attention.by_branches(self.layout, trees, put)

    def token_logprobs(self, net, entropy_grad: bool, call=None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (logprobs_N, entropy_N) in float32, at the temperature with which each token was sampled.

        `call` takes the place of `net` in a forward-mode derivative.
        """
        inputs, how = (self.ids_M, self.at_M, self.layout), (self.temperature_U, self.from_N, self.id_N, entropy_grad)
        kept = 8 if self.dtype == torch.bfloat16 and not self.ids_M.is_cuda else 1  # `_Pick16` keeps no others
        is_small = len(self.keep_U) * net.config.get_text_config().vocab_size <= LARGE_LOGITS * kept
        if is_small or in_forward_mode():
            return _pick(tree_attention.forward(call or net, net.config, *inputs, self.keep_U), *how)
        return _pick_in_chunks(net, tree_attention.hidden(net, *inputs).index_select(0, self.keep_U), *how)


class ChunkedBatch(PaddedBatch):
    """Padded rows, and the logits of a few positions at a time."""

    def token_logprobs(self, net, entropy_grad: bool, call=None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probability and entropy (N,) of each token, in float32."""
        if in_forward_mode():
            return super().token_logprobs(net, entropy_grad, call)
        hidden_Nh = net.base_model(**self.inputs, use_cache=False)[0][self.row_N, self.at_N]
        every_N, id_N = torch.arange(len(self.at_N), device=self.at_N.device), self.ids_BL[self.row_N, self.at_N + 1]
        return _pick_in_chunks(net, hidden_Nh, self.temperature_B[self.row_N], every_N, id_N, entropy_grad)


def _pick_in_chunks(net, hidden_Uh, temperature_U, from_N, id_N, entropy_grad: bool):
    """Return what `_pick` returns for the logits of the last hidden states; a backward pass computes many again."""
    head, order_N, parts = head_of(net), torch.argsort(from_N), []
    step = max(1, LARGE_LOGITS // net.config.get_text_config().vocab_size)
    if len(hidden_Uh) <= step:
        return _pick(head(hidden_Uh), temperature_U, from_N, id_N, entropy_grad)
    for start in range(0, len(hidden_Uh), step):
        rows = slice(start, start + step)
        first, last = torch.searchsorted(from_N[order_N], torch.tensor([start, start + step]).to(order_N))
        part_N = order_N[first:last]
        pick = lambda h, *rest: _pick(head(h), *rest)  # noqa: E731
        rest = temperature_U[rows], from_N[part_N] - start, id_N[part_N], entropy_grad
        parts.append(checkpoint(pick, hidden_Uh[rows], *rest, use_reentrant=False))
    logprobs_N, entropy_N = (torch.cat(values)[torch.argsort(order_N)] for values in zip(*parts, strict=True))
    return logprobs_N, entropy_N


def head_of(net) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function from the last hidden states (U, h) to the logits (U, V).

    It is the output embedding. A model that caps or scales its logits computes them itself, with the hidden states in
    place of its body.
    """
    config = net.config.get_text_config()
    scaled = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier")
    if not any(getattr(config, name, None) for name in scaled):
        return net.get_output_embeddings()

    def head(hidden_Uh: torch.Tensor) -> torch.Tensor:
        body = net.base_model
        body.forward = lambda **_: MoeModelOutputWithPast(last_hidden_state=hidden_Uh[None])
        try:
            return net(inputs_embeds=hidden_Uh[None], use_cache=False).logits[0]
        finally:
            del body.forward

    return head


class _Pick16(torch.autograd.Function):
    """`_pick` for logits in bfloat16 on a CPU, a few rows at a time, so that buffers in float32 stay in the cache.

    With p = softmax(z / temperature), the gradient of log p_i by z_j is (1[i = j] - p_j) / temperature.
    """

    @staticmethod
    def forward(ctx, logits_UV, temperature_U, from_N, id_N):
        ctx.save_for_backward(logits_UV, temperature_U, from_N, id_N)
        picked_N, entropy_U = temperature_U.new_empty(len(from_N)), torch.empty_like(temperature_U)
        for rows, own_N in _few_rows(from_N, *logits_UV.shape):
            logprobs_UV = torch.log_softmax(logits_UV[rows] / temperature_U[rows, None], -1)
            picked_N[own_N] = logprobs_UV[from_N[own_N] - rows.start, id_N[own_N]]
            entropy_U[rows] = -(logprobs_UV.exp().mul_(logprobs_UV)).sum(-1)
        entropy_N = entropy_U[from_N]
        ctx.mark_non_differentiable(entropy_N)
        return picked_N, entropy_N

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_N, _):
        logits_UV, temperature_U, from_N, id_N = ctx.saved_tensors
        total_U = torch.zeros_like(temperature_U).index_add_(0, from_N, grad_N)
        for rows, own_N in _few_rows(from_N, *logits_UV.shape):
            part_UV = torch.softmax(logits_UV[rows] / temperature_U[rows, None], -1).mul_(-total_U[rows, None])
            part_UV.index_put_((from_N[own_N] - rows.start, id_N[own_N]), grad_N[own_N], accumulate=True)
            logits_UV[rows] = part_UV.div_(temperature_U[rows, None])  # a second backward pass would be refused
        return logits_UV, None, None, None


def _few_rows(from_N: torch.Tensor, U: int, V: int) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield slices of rows of logits (U, V) that fit the cache, and the tokens that each slice predicts."""
    step = max(1, CACHED_LOGITS // V)
    for start in range(0, U, step):
        yield slice(start, start + step), torch.nonzero((from_N >= start) & (from_N < start + step))[:, 0]


def _pick(logits_UV, temperature_U, from_N, id_N, entropy_grad: bool) -> tuple[torch.Tensor, torch.Tensor]:
    if logits_UV.dtype == torch.bfloat16 and not (logits_UV.is_cuda or entropy_grad or in_forward_mode()):
        return _Pick16.apply(logits_UV, temperature_U, from_N, id_N)
    logprobs_UV = torch.log_softmax(logits_UV / temperature_U[:, None], -1)  # in float32, the temperature's type
    del logits_UV  # two or three buffers of this size are the peak of an update
    if entropy_grad:
        entropy_U = -(logprobs_UV.exp() * logprobs_UV).sum(-1)
    else:
        entropy_U = -(logprobs_UV.detach().exp().mul_(logprobs_UV.detach())).sum(-1)
    return logprobs_UV[from_N, id_N], entropy_U[from_N]
