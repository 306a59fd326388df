"""Policies whose weights live behind a Tinker-compatible server: one training client, one adapter for each.

`accumulate` is forward_backward, `apply` optim_step, `publish` save_weights_and_get_sampling_client. A gradient lies on
the server and is seen by its norm alone. Leaves out: the connection (`service`) and sampling (`engine`).
"""

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from transformers import AutoTokenizer

from mas_lab.backends.tinker.engine import TinkerEngine
from mas_lab.backends.tinker.losses import inputs, server_loss
from mas_lab.backends.tinker.service import Service
from mas_lab.backends.torch.encoding import encode
from mas_lab.backends.torch.source import Source, model_config
from mas_lab.cells.advantages import per_token
from mas_lab.cells.contract import token_losses
from mas_lab.cells.losses import Loss
from mas_lab.env import Message
from mas_lab.locks import ModelLock, held
from mas_lab.policy import Completion, PolicyError, Request, Sample, Tokens

RECORD = "policy.json"
TOLERANCE = 1e-2
"""How far a sampled token's log-probability may lie from that of the weights that learn, in nats."""


@dataclass(frozen=True)
class TinkerOptions:
    """How a server is used."""

    url: str = "http://127.0.0.1:8000"
    """Its address."""
    api_key: str | None = None
    """Of a hosted server; TINKER_API_KEY stands for it. Never written anywhere."""
    model: str | None = None
    """What the server calls the base model, where that is not its directory or hub id."""
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    clips: bool = False
    """Does the server clip by AdamParams.grad_clip_norm? The hosted one does; SkyRL 0.3 does not, and says nothing."""
    tolerance: float = TOLERANCE
    """Of the proof that fresh weights are sampled from."""
    timeout_s: float = 900.0
    """Seconds of one answer, compilation included."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "TinkerOptions":
        unknown = sorted(set(options) - set(cls.__dataclass_fields__))
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise PolicyError(f"backend 'tinker' has no option {unknown[0]!r}; its options are {known}")
        return cls(**options | ({"betas": tuple(options["betas"])} if "betas" in options else {}))

    def told(self) -> dict[str, Any]:
        """What a checkpoint says of it."""
        return {name: value for name, value in asdict(self).items() if name not in ("api_key", "timeout_s")}


class TinkerBase:
    """A base model on a server, with up to `adapters` adapters of one rank."""

    def __init__(self, source: Source, adapters: int, rank: int, lr: float, seed: int, template: Any, **options: Any):
        self.source, self.size, self.rank, self.lr, self.seed = source, adapters, rank, lr, seed
        self.options, self.template, self.lock = TinkerOptions.of(options), dict(template or {}), ModelLock()
        self.service = Service(self.options.url, self.options.api_key, self.options.timeout_s)
        here, self.name = source.location(), self.options.model or source.location()
        known = self.service.models()
        if self.name not in known:
            raise PolicyError(
                f"the Tinker server at {self.options.url} has no model {self.name!r}; it has {', '.join(known)}: say "
                "which it is by model=, or start it with --base-model"
            )
        self.tokenizer = AutoTokenizer.from_pretrained(here, trust_remote_code=False)
        text = model_config(here).get_text_config()
        self.context = getattr(text, "max_position_embeddings", None) or 2**20
        listed = text.eos_token_id if isinstance(text.eos_token_id, list) else [text.eos_token_id]
        self.eos = frozenset(int(one) for one in (*listed, self.tokenizer.eos_token_id) if one is not None)
        self.engine = TinkerEngine(self.service, self.tokenizer, self.eos)
        self.policies: dict[str, TinkerPolicy] = {}
        self.averages: bool | None = None
        """Does the server's gradient average over sequences (SkyRL's jax), or sum them (Tinker)? Tried once."""

    def adapter(self, agent: str, rank: int | None = None, lr: float | None = None) -> "TinkerPolicy":
        """This agent's policy; the same one when asked again. Raises PolicyError when all adapters are taken."""
        if rank not in (None, self.rank):
            raise PolicyError(f"agent {agent!r} asks for rank {rank}; a server's adapters have one rank, {self.rank}")
        if agent not in self.policies:
            if len(self.policies) == self.size:
                raise PolicyError(
                    f"agent {agent!r} asks for an adapter; the base was loaded with adapters={self.size}, taken by "
                    f"{', '.join(self.policies)}"
                )
            self.policies[agent] = TinkerPolicy(self, agent, len(self.policies))
        policy = self.policies[agent]
        policy.lr = policy.lr if lr is None else lr
        return policy

    def new_client(self, seed: int) -> Any:
        """A fresh adapter with its optimizer."""
        made = lambda: self.service.client.create_lora_training_client(self.name, rank=self.rank, seed=seed)  # noqa: E731
        return self.service.of("make an adapter", made)

    def averages_sequences(self) -> bool:
        """One sequence once and twice: a sum has twice the norm."""
        if self.averages is None:
            client, token = self.new_client(self.seed), min(self.eos)
            sample = Sample((token, token), (token,), (0.0,), 1.0, 1.0, 1.0)
            norms = []
            for copies in (1, 2):
                self.send(client, [sample] * copies, "cross_entropy", {}, 1.0)
                norms.append(self.step(client, 0.0, None))
            if np.isnan(norms).any() or not norms[0]:
                self.averages = False  # as Tinker's documentation says
            else:
                self.averages = norms[1] < 1.5 * norms[0]
        return self.averages

    def send(self, client: Any, samples: Sequence[Sample], name: str, config: dict, factor: float) -> list[Any]:
        """forward_backward; what came of each sample."""
        from tinker import types

        data = [
            types.Datum(
                model_input=types.ModelInput.from_ints([*map(int, one.prompt_ids), *map(int, one.completion_ids)][:-1]),
                loss_fn_inputs=inputs(one, name, factor),
            )
            for one in samples
        ]
        found = self.service.of("train", lambda: client.forward_backward(data, name, loss_fn_config=config or None))
        return found.loss_fn_outputs

    def step(self, client: Any, lr: float, max_norm: float | None) -> float:
        """optim_step; the gradient's norm as the server tells it, NaN where it does not."""
        from tinker import types

        beta1, beta2 = self.options.betas
        adam = types.AdamParams(learning_rate=lr, beta1=beta1, beta2=beta2, eps=1e-8,
                                weight_decay=self.options.weight_decay, grad_clip_norm=max_norm or 0.0)  # fmt: skip
        told = self.service.of("step", lambda: client.optim_step(adam)).metrics or {}
        norms = [value for name, value in told.items() if name.rpartition("/")[2].startswith("grad_norm")]
        return float(norms[0]) if norms else float("nan")


class TinkerPolicy:
    """An adapter on a server, with its optimizer there."""

    sees_gradients = False
    device = torch.device("cpu")

    def __init__(self, base: TinkerBase, name: str, index: int):
        self.base, self.name, self.index, self.lr, self.version = base, name, index, base.lr, 0
        self.client = base.new_client(base.seed + index)
        self._sampler, self._published = None, -1
        self._whole, self._expected, self._pending = True, None, False
        """Is nothing lost? How many sequences make the next step? Has any of them been sent?"""

    model = property(lambda self: self.base)
    tokenizer = property(lambda self: self.base.tokenizer)
    engine = property(lambda self: self.base.engine)
    lock = property(lambda self: self.base.lock)
    context = property(lambda self: self.base.context)

    def __repr__(self) -> str:
        where = self.base.options.url
        return f"TinkerPolicy(model={self.base.name!r}, adapter={self.name!r}, lr={self.lr}, url={where!r})"

    # Speaking

    def encode(self, messages: Sequence[Message]) -> list[int]:
        return self.encode_all([messages])[0]

    def encode_all(self, chats: Sequence[Sequence[Message]]) -> list[list[int]]:
        return encode(self.tokenizer, chats, self.base.template, self.name)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        return self.engine.sample(self, requests)

    @held()
    def sampler(self) -> Any:
        """The sampling client of the weights as they are."""
        self.publish()
        return self._sampler

    @held()
    def publish(self) -> None:
        """Has the server sample from these weights, and proves it on one request: what is sampled must have the
        log-probabilities that `forward` gives it. Raises PolicyError where it has not."""
        self._require_whole()
        if self._published == self.version:
            return
        publish = self.client.save_weights_and_get_sampling_client
        self._sampler, self._published = self.base.service.of("publish weights", publish), self.version
        request = self.engine.last(self)
        if request is None:
            return
        said = self.engine.sample(self, [request])[0]
        told = Sample(request.prompt_ids, said.ids, said.logprobs, 1.0, 0.0, 0.0)
        gap = (
            (self.logprobs([told]) - torch.tensor(said.logprobs)).abs().max().item() if request.temperature == 1 else 0
        )
        if not gap <= self.base.options.tolerance:
            self._published = -1
            raise PolicyError(
                f"policy {self.name!r}: stale weights: after publishing, a sampled token's log-probability differs "
                f"from that of the trained weights by {gap:.2g} (tolerance {self.base.options.tolerance:.2g}); publish "
                "once more, and if it happens again, the server samples from other weights than it trains"
            )

    # Learning

    @held()
    def logprobs(self, samples: Sequence[Sample]) -> torch.Tensor:
        """Log-probabilities of the sampled tokens (N,), by the server's forward; without gradient."""
        from tinker import types

        data = [
            types.Datum(
                model_input=types.ModelInput.from_ints([*map(int, one.prompt_ids), *map(int, one.completion_ids)][:-1]),
                loss_fn_inputs=inputs(one, "cross_entropy", 0.0),
            )
            for one in samples
        ]
        found = self.base.service.of("compute log-probabilities", lambda: self.client.forward(data, "cross_entropy"))
        return self._tokens(found.loss_fn_outputs, samples)

    def _tokens(self, found: Sequence[Any], samples: Sequence[Sample]) -> torch.Tensor:
        parts = [
            one["logprobs"].data[-len(sample.completion_ids) :] for one, sample in zip(found, samples, strict=True)
        ]
        return torch.tensor([float(value) for part in parts for value in part])

    def entropies(self, samples: Sequence[Sample]) -> NoReturn:
        raise PolicyError(f"policy {self.name!r}: a Tinker server does not give entropies")

    def refuse(self, loss: Loss, max_norm: float | None) -> None:
        """Raises PolicyError for what the server would not do, or would leave undone without a word."""
        self._require_whole()
        server_loss(loss, f"policy {self.name!r}, backend 'tinker'")
        if max_norm is not None and not self.base.options.clips:
            raise PolicyError(
                f"policy {self.name!r}: max_norm={max_norm}, and the Tinker server at {self.base.options.url} may not "
                "clip (SkyRL 0.3 takes the bound and does nothing with it); pass max_norm=None, or load_base(..., "
                "clips=True) where you know that it does, as the hosted one"
            )

    def expect(self, sequences: int) -> None:
        """How many sequences the next step is made of: a server that averages divides by them."""
        self._expected = sequences

    @held()
    def accumulate(self, samples: Sequence[Sample], loss: Loss) -> Tokens:
        """forward_backward: adds the gradient of sum_i weight_i sum_t losses_it to the server's."""
        name, config = server_loss(loss, f"policy {self.name!r}, backend 'tinker'")
        tempered = [one.temperature for one in samples if one.temperature != 1]
        if tempered:
            raise PolicyError(
                f"policy {self.name!r}: a row was sampled at temperature {tempered[0]:g}, and a Tinker server trains "
                "the distribution of temperature 1; have the team sample at 1"
            )
        factor = float(self._expected or len(samples)) if self.base.averages_sequences() else 1.0
        self._pending = True
        logprobs_N = self._tokens(self.base.send(self.client, samples, name, config, factor), samples)
        lengths = [len(one.completion_ids) for one in samples]
        old_N = torch.tensor([float(value) for one in samples for value in one.logprobs])
        own = [per_token(one.advantage, length) for one, length in zip(samples, lengths, strict=True)]
        advantages_N = torch.tensor(np.concatenate(own), dtype=torch.float32)
        row_N = torch.from_numpy(np.repeat(np.arange(len(samples)), lengths))
        unknown_N = torch.full_like(logprobs_N, float("nan"))
        losses_N = token_losses(loss, logprobs_N, old_N, advantages_N, row_N, unknown_N, None)
        return Tokens(logprobs_N, unknown_N, losses_N)

    @held(changing=True)
    def apply(self, max_norm: float | None, lr_scale: float = 1.0) -> tuple[float, float]:
        """optim_step at `lr * lr_scale`. Returns the gradient's norm before and after clipping, as the server tells."""
        self._require_whole()
        self._pending, self._whole, self._expected = False, False, None
        before = self.base.step(self.client, self.lr * lr_scale, max_norm)
        self._whole, self.version = True, self.version + 1
        return before, before if max_norm is None else min(before, max_norm)

    def clear_gradients(self) -> None:
        """A server keeps what it was sent until it steps. What a step that was not made has left cannot be taken back:
        this policy is then used no more, until a saved state is loaded."""
        self._whole, self._pending = self._whole and not self._pending, False

    def _require_whole(self) -> None:
        if not self._whole:
            raise PolicyError(
                f"policy {self.name!r}: a step was broken off, and the server may hold its gradient; load a saved "
                "state: train(..., run=...) with the same run goes on from its last checkpoint"
            )

    def _out_of_sight(self, what: str) -> NoReturn:
        raise PolicyError(
            f"policy {self.name!r}: {what} lies on the Tinker server, which tells its norm alone; shares of samples "
            "and tokens want weights that are here"
        )

    def gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        self._out_of_sight("the gradient")

    def set_gradients(self, gradients: Iterable[torch.Tensor]) -> None:
        self._out_of_sight("the gradient")

    def slopes(self, samples: Sequence[Sample], loss: Loss, along: Sequence[torch.Tensor]) -> torch.Tensor:
        self._out_of_sight("what a token moves")

    # Keeping

    def describe(self) -> dict[str, Any]:
        """What this policy is; two that agree may swap states."""
        told = self.base.options.told()
        del told["url"]
        return {"backend": "tinker", "source": asdict(self.base.source), "template": self.base.template, "lr": self.lr,
                "lora": {"rank": self.base.rank, "seed": self.base.seed, "index": self.index}, "options": told,
                "name": self.name}  # fmt: skip

    @held()
    def save(self, directory: Path) -> None:
        """Where on the server its state lies, weights and optimizer, and what rebuilds the policy. The weights stay
        there: a checkpoint is worth as much as the server's storage."""
        self._require_whole()
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        called = f"{self.name}-{self.version}-{secrets.token_hex(4)}"
        path = self.base.service.of("save", lambda: self.client.save_state(called)).path
        record = self.describe() | {"state": path, "url": self.base.options.url, "adapters": self.base.size}
        (directory / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
        self.tokenizer.save_pretrained(directory)

    @held(changing=True)
    def load(self, directory: Path) -> None:
        """The state that `save` named, if the server still has it."""
        path = read_record(Path(directory))["state"]
        self.base.service.of(f"load the state {path}", lambda: self.client.load_state_with_optimizer(path))
        self.version, self._whole, self._pending, self._published = self.version + 1, True, False, -1


def load_base(name: str | Path, adapters: int, rank: int, lr: float | None, template: Any, seed: int,
              **options: Any) -> TinkerBase:  # fmt: skip
    """See `mas_lab.backends.load_base`."""
    source = Source.find(name)
    lr = source.default_lr(lora=True) if lr is None else lr
    return TinkerBase(source, adapters, rank, lr, seed, template, **options)


def restore(directories: Mapping[str, str | Path]) -> dict[str, TinkerPolicy]:
    """Policies that `save` wrote, by their names; adapters of one base share it again."""
    bases: dict[str, TinkerBase] = {}
    found = {}
    for name, directory in directories.items():
        record = read_record(Path(directory))
        lora, options = record["lora"], record["options"] | {"url": record["url"]}
        alike = json.dumps([record["source"], lora["rank"], lora["seed"], options], sort_keys=True)
        if alike not in bases:
            source = Source(**record["source"])
            bases[alike] = TinkerBase(
                source, record["adapters"], lora["rank"], record["lr"], lora["seed"], record["template"], **options
            )
        policy = found[name] = bases[alike].adapter(record["name"], lr=record["lr"])
        policy.load(Path(directory))
    return found


def read_record(directory: Path) -> dict[str, Any]:
    """Raises PolicyError, which names the file, where it is missing or was not written by `save`."""
    path = directory / RECORD
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        needed = ("source", "lora", "options", "url", "adapters", "state", "lr", "template", "name")
        missing = [name for name in needed if name not in found]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise PolicyError(f"{path} was not written by a policy of backend 'tinker' ({error})") from None
    if missing:
        raise PolicyError(f"{path} has no {missing[0]!r}: it was not written by a policy of backend 'tinker'")
    return found
