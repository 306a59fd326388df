"""A back end in one file: words are tokens, and a table gives the logits of the next word after each word."""

import torch

from mas_lab.locks import ModelLock
from mas_lab.policy import Capabilities, Completion, Tokens, WaveEngine


class BigramEngine(WaveEngine):
    def complete(self, asked):
        return [policy.draw(request) for policy, request in asked]


class BigramPolicy:
    def __init__(self, words, lr=1.0):
        self.name, self.lr, self.version, self.context, self.words = "bigram", lr, 0, 64, ["<eos>", *words]
        self.model = torch.nn.Embedding.from_pretrained(torch.zeros([len(self.words)] * 2), freeze=False)
        self.engine, self.lock, self.capabilities = BigramEngine(), ModelLock(), Capabilities(gradients=False)

    def encode_all(self, chats):
        chats = [messages[-1]["content"].split() for messages in chats]
        return [[self.words.index(word) for word in chat if word in self.words] or [0] for chat in chats]

    @torch.no_grad()
    def draw(self, request):
        rng, ids, logprobs = torch.Generator().manual_seed(request.seed % 2**63), [request.prompt_ids[-1]], []
        while len(logprobs) < request.max_tokens and (ids[-1] or not logprobs):
            logprobs_V = (self.model.weight[ids[-1]] / request.temperature).log_softmax(-1)
            ids.append(torch.multinomial(logprobs_V.exp(), 1, generator=rng).item())
            logprobs.append(logprobs_V[ids[-1]].item())
        text = " ".join(self.words[i] for i in ids[1:] if i)
        return Completion(tuple(ids[1:]), tuple(logprobs), text, "length" if ids[-1] else "eos")

    def forward_backward(self, samples, loss):
        if not samples:
            return Tokens(*[torch.zeros(0)] * 3)
        ids_N = torch.tensor([i for s in samples for i in s.completion_ids])
        last_N = torch.tensor([i for s in samples for i in (s.prompt_ids[-1], *s.completion_ids[:-1])])
        row_N = torch.tensor([row for row, s in enumerate(samples) for _ in s.completion_ids])
        old_N = torch.tensor([logprob for s in samples for logprob in s.logprobs])
        advantages_N = torch.tensor([float(a) for s in samples for a in s.advantages_T])
        temperature_N, weight_N = torch.tensor([[s.temperature, s.weight] for s in samples])[row_N].T
        logprobs_NV = (self.model(last_N) / temperature_N[:, None]).log_softmax(-1)
        logprobs_N, entropy_N = logprobs_NV[range(len(ids_N)), ids_N], -(logprobs_NV.exp() * logprobs_NV).sum(-1)
        losses_N = loss(logprobs_N, old_N, advantages_N, row_N, entropy_N)
        (losses_N * weight_N).sum().backward()
        return Tokens(logprobs_N.detach(), entropy_N.detach(), losses_N.detach())

    def set_gradients(self, gradients):
        self.model.weight.grad = gradients

    def optim_step(self, max_norm, lr_scale=1.0):
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm or float("inf")).item()
        torch.optim.SGD(self.model.parameters(), self.lr * lr_scale).step()
        self.version += 1
        return norm, min(norm, max_norm or norm)

    def sync_weights(self):
        self.set_gradients(None)  # the engine samples from the table that is trained
