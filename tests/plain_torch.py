"""One optimizer step as a textbook writes it: row by row, a full softmax, autograd, AdamW. Slow and easy to read."""

import torch


def token_logprobs(model, rows):
    """Log-probabilities and entropies (N,) of the completion tokens, row after row, at each row's temperature."""
    logprobs, entropies = [], []
    for row in rows:
        ids, said = [*row["prompt_ids"], *row["completion_ids"]], row["completion_ids"]
        logits_TV = model(input_ids=torch.tensor([ids])).logits[0, -len(said) - 1 : -1]
        logprobs_TV = (logits_TV / row["temperature"]).log_softmax(-1)
        logprobs.append(logprobs_TV.gather(1, torch.tensor(said)[:, None])[:, 0])
        entropies.append(-(logprobs_TV.exp() * logprobs_TV).sum(-1))
    return torch.cat(logprobs), torch.cat(entropies)


def weights(rows, aggregate):
    """Per token, so that the weighted sum of all token losses is the mean that `aggregate` names."""
    tokens, agents = sum(len(row["completion_ids"]) for row in rows), {row["agent"] for row in rows}
    answer = []
    for row in rows:
        length, spoke = len(row["completion_ids"]), sum(other["agent"] == row["agent"] for other in rows)
        of_row = {"token": length / tokens, "turn": 1 / len(rows), "agent": 1 / spoke / len(agents)}
        answer += [1 / len(rows) if aggregate == "sum" else of_row[aggregate] / length] * length
    return torch.tensor(answer)


def per_token(rows, values):
    return torch.tensor([value for row, value in zip(rows, values, strict=True) for _ in row["completion_ids"]])


def clipped_loss(logprobs, old, advantages, low=0.2, high=0.2, dual=None):
    """-min(rho A, clip(rho) A), and for A < 0 no more than dual * |A|."""
    ratio = torch.exp(logprobs - old)
    gain = torch.min(ratio * advantages, torch.clamp(ratio, 1 - low, 1 + high) * advantages)
    if dual is not None:
        gain = torch.where(advantages < 0, torch.max(gain, dual * advantages), gain)
    return -gain


def row_ratios(rows, logprobs, old, ratio):
    """Log-ratios (N,) as if each token had its row's: the mean of the row's own ("sequence"), or their sum."""
    lengths = [len(row["completion_ids"]) for row in rows]
    of_rows = [own.mean() if ratio == "sequence" else own.sum() for own in (logprobs - old).split(lengths)]
    return torch.cat([own.expand(length) for own, length in zip(of_rows, lengths, strict=True)])


def token_losses(model, rows, loss, reference=None):
    """(N,) losses with gradient; `loss` is a dict: its `kind`, and what that takes, `ratio`, `kl`, `entropy`, `tis`."""
    settings = dict(loss)
    kind, kl, bonus = settings.pop("kind"), settings.pop("kl", 0.0), settings.pop("entropy", 0.0)
    tis, trust = settings.pop("tis", None), 1.0
    logprobs, entropy = token_logprobs(model, rows)
    old = torch.tensor([value for row in rows for value in row["logprobs"]])
    advantages = per_token(rows, [row["advantage"] for row in rows])
    if tis is not None:  # the engine's tokens, weighed by what the weights said of them before they learned
        with torch.no_grad():
            start = token_logprobs(reference, rows)[0]
        old, trust = start, torch.clamp(torch.exp(start - old), max=tis)
    if (ratio := settings.pop("ratio", "token")) != "token":
        old = logprobs - row_ratios(rows, logprobs, old, ratio)
    losses = clipped_loss(logprobs, old, advantages, **settings) if kind == "clipped" else -advantages * logprobs
    losses = trust * losses
    if kl:
        with torch.no_grad():
            gap = token_logprobs(reference, rows)[0]
        gap = gap - logprobs
        losses = losses + kl * (gap.exp() - gap - 1)
    return losses - bonus * entropy


def gradients(model, rows, loss, aggregate, only=None, reference=None):
    """Name -> gradient of the whole mean, or of the share that the rows of agent `only` have in it."""
    model.zero_grad()
    weight = weights(rows, aggregate)
    if only is not None:
        weight = weight * per_token(rows, [float(row["agent"] == only) for row in rows])
    (token_losses(model, rows, loss, reference) * weight).sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def norm(found):
    return torch.cat([gradient.flatten() for gradient in found.values()]).norm().item()
