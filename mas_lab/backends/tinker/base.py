"""A base model on a Tinker-compatible server: its adapters, and the requests that all of them use.

Leaves out: an adapter as a policy (`policy`), the connection (`service`) and sampling (`engine`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from transformers import AutoTokenizer

from mas_lab.backends.tinker.engine import TinkerEngine
from mas_lab.backends.tinker.losses import data
from mas_lab.backends.tinker.service import Service
from mas_lab.backends.torch.source import Source, model_config
from mas_lab.locks import ModelLock
from mas_lab.policy import PolicyError, Sample

TOLERANCE = 1e-2
"""Largest difference between a sampled token's log-probability and that of the weights that learn, in nats."""


@dataclass(frozen=True)
class TinkerOptions:
    """Options of a server."""

    url: str = "http://127.0.0.1:8000"
    """Address of the server."""
    api_key: str | None = None
    """Key of a hosted server. `None`: the environment variable TINKER_API_KEY. It is never written anywhere."""
    model: str | None = None
    """The server's name for the base model. `None`: its directory or hub id."""
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    clips: bool = False
    """True if the server clips by AdamParams.grad_clip_norm. The hosted one does. SkyRL 0.3 does not, and gives no
    error."""
    tolerance: float = TOLERANCE
    """Tolerance of the proof that tokens are sampled from fresh weights."""
    timeout_s: float = 900.0
    """Seconds that one answer may take, including compilation."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "TinkerOptions":
        unknown = sorted(set(options) - set(cls.__dataclass_fields__))
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise PolicyError(f"backend 'tinker' has no option {unknown[0]!r}; its options are {known}")
        return cls(**options | ({"betas": tuple(options["betas"])} if "betas" in options else {}))

    def plain(self) -> dict[str, Any]:
        """Return the options that a checkpoint records."""
        return {name: value for name, value in asdict(self).items() if name not in ("api_key", "timeout_s")}


class TinkerBase:
    """A base model on a server, with up to `adapters` adapters of one rank; `make` makes a policy of each."""

    def __init__(
        self, make: Any, source: Source, adapters: int, rank: int, lr: float, seed: int, template: Any, **options: Any
    ):
        self.make = make
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
        self.engine = TinkerEngine(self.service, self.eos)
        self.policies: dict[str, Any] = {}
        self.averages: bool | None = None
        """True if the server's gradient is the average over sequences (SkyRL's jax), False if it is the sum (Tinker).
        `None`: not tried yet."""

    def adapter(self, agent: str, rank: int | None = None, lr: float | None = None) -> Any:
        """Return this agent's policy, always the same one; raise PolicyError if all adapters are taken."""
        if rank not in (None, self.rank):
            raise PolicyError(f"agent {agent!r} asks for rank {rank}; a server's adapters have one rank, {self.rank}")
        if agent not in self.policies:
            if len(self.policies) == self.size:
                raise PolicyError(
                    f"agent {agent!r} asks for an adapter; the base was loaded with adapters={self.size}, taken by "
                    f"{', '.join(self.policies)}"
                )
            self.policies[agent] = self.make(self, agent, len(self.policies))
        policy = self.policies[agent]
        policy.lr = policy.lr if lr is None else lr
        return policy

    def new_client(self, seed: int) -> Any:
        """Return a fresh adapter with its optimizer."""
        made = lambda: self.service.client.create_lora_training_client(self.name, rank=self.rank, seed=seed)  # noqa: E731
        return self.service.of("make an adapter", made)

    def averages_sequences(self) -> bool:
        """Return True if the server averages over sequences: two copies of a sequence then do not double the norm."""
        if self.averages is None:
            client, token = self.new_client(self.seed), min(self.eos)
            sample = Sample((token, token), (token,), (0.0,), 1.0, 1.0, 1.0)
            norms = []
            for copies in (1, 2):
                self.send(client, [sample] * copies, "cross_entropy", {}, 1.0)
                norms.append(self.step(client, 0.0, None))
            if np.isnan(norms).any() or not norms[0]:
                self.averages = False  # the behaviour in Tinker's documentation
            else:
                self.averages = norms[1] < 1.5 * norms[0]
        return self.averages

    def send(self, client: Any, samples: Sequence[Sample], name: str, config: dict, factor: float) -> list[Any]:
        """Call forward_backward and return the result of each sample."""
        rows = data(samples, name, factor)
        found = self.service.of("train", lambda: client.forward_backward(rows, name, loss_fn_config=config or None))
        return found.loss_fn_outputs

    def step(self, client: Any, lr: float, max_norm: float | None) -> float:
        """Call optim_step and return the gradient's norm as the server reports it, or NaN if it does not."""
        from tinker import types

        beta1, beta2 = self.options.betas
        adam = types.AdamParams(learning_rate=lr, beta1=beta1, beta2=beta2, eps=1e-8,
                                weight_decay=self.options.weight_decay, grad_clip_norm=max_norm or 0.0)  # fmt: skip
        told = self.service.of("step", lambda: client.optim_step(adam)).metrics or {}
        norms = [value for name, value in told.items() if name.rpartition("/")[2].startswith("grad_norm")]
        return float(norms[0]) if norms else float("nan")
