"""A Hugging Face causal LM in memory, and what all policies over it share: tokenizer, engine, source, options.

Leaves out: optimizers and gradients (`policy`), sampling (`engine`).
"""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from mas_lab.backends.torch.finite import require_finite
from mas_lab.backends.torch.padded import padded_batches
from mas_lab.backends.torch.sampling import PaddedEngine
from mas_lab.backends.torch.source import Source, model_config
from mas_lab.backends.torch.threads import settle_threads
from mas_lab.locks import ModelLock
from mas_lab.policy import PolicyError, Sample

OPTIMIZERS = ("adamw", "sgd")
PACKINGS = ("auto", "packed", "padded")


@dataclass(frozen=True)
class Options:
    """How a torch policy computes and steps. The first five change nothing of what is learned, up to float noise."""

    of_the_machine: ClassVar[tuple[str, ...]] = ("device",)
    """Options that a resumed run may change."""

    device: str | None = None
    """`None`: CUDA where a trial product works there, else the CPU."""
    dtype: str | None = None
    """Of the products: `None` is float32 on CPU; on CUDA bfloat16, or float16 where that is missing (LoRA only)."""
    packing: str = "auto"
    """"packed": one tree per prompt; "padded": one row per sample; "auto": per prompt, by counted operations."""
    train_tokens: int = 4096
    """Tokens per micro-batch of the update."""
    sample_tokens: int = 65536
    """Tokens (prompts and completions at full length) that are sampled at once."""
    optimizer: str = "adamw"
    """"adamw", or "sgd", plain: it follows the size of a gradient, which AdamW divides out."""
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    """Of AdamW."""
    alpha: float = 2.0
    """LoRA: the adapter's output is scaled by `alpha` (PEFT's lora_alpha / rank)."""
    plain: bool = False
    """Sample and train by the readable padded code (`sampling`, `padded`) in place of the fast one (`fast`)."""

    def __post_init__(self):
        if self.packing not in PACKINGS:
            raise PolicyError(f"packing {self.packing!r}; known: {', '.join(PACKINGS)}")
        if self.optimizer not in OPTIMIZERS:
            raise PolicyError(f"optimizer {self.optimizer!r}; known: {', '.join(OPTIMIZERS)}")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Options":
        known = [f.name for f in fields(cls)]
        unknown = [name for name in options if name not in known]
        if unknown:
            raise PolicyError(f"this back end has no option {unknown[0]!r}; it has: {', '.join(known)}")
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in options.items()})


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars from transformers inside: small models load and save often."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def pick_device() -> str:
    """CUDA only where a product really works (an old card may be visible and fail at the first operation). Where a
    launcher started several processes, each has a device of its own."""
    if torch.cuda.is_available():
        device = f"cuda:{os.environ['LOCAL_RANK']}" if "LOCAL_RANK" in os.environ else "cuda"
        try:
            torch.ones(8, 8, device=device).mm(torch.ones(8, 8, device=device)).sum().item()
            return device
        except RuntimeError:
            return "cpu"
    return "cpu"


def own_memory(net) -> None:
    """Weights that were read lie in the mapped file, where its header happened to put them, and products over other
    alignments differ in their last bits. Copied, they compute the same wherever they came from."""
    for parameter in net.parameters():
        parameter.data = parameter.data.clone()


class TorchModel:
    """`net` is the transformers model; `peft` wraps the same one where adapters are trained.

    Another back end is a subclass: it reads the weights, adds adapters or samples in its own way. `lora`: how many
    adapters will be added, and of which rank (an engine may have to know that when it starts); `None` trains it all.
    """

    backend = "torch"
    Options = Options

    def __init__(
        self,
        source: Source,
        options: Options,
        template: Mapping[str, Any] | None,
        lora: tuple[int, int] | None = None,
        weights=None,
    ):
        self.source, self.options, self.template, self.peft = source.pinned(), options, dict(template or {}), None
        self.lora, self.lock = lora, ModelLock()
        self.device = torch.device(options.device or pick_device())
        if self.device.type == "cpu":
            settle_threads()
        self.dtype = self._dtype()
        self.weights = str(weights or source.location())
        self.net = self.read(self.weights, self.dtype if lora else torch.float32)
        require_finite(dict(self.net.named_parameters()), self.source.name, f"in {self.weights}")
        self.tokenizer = AutoTokenizer.from_pretrained(self.weights, trust_remote_code=False)
        self.context = getattr(self.net.config.get_text_config(), "max_position_embeddings", None) or 2**20
        self.engine = self.make_engine()
        self._reference = None

    def make_engine(self):
        """Return the engine that samples from this model."""
        if self.options.plain:
            return PaddedEngine(self)
        from mas_lab.backends.torch.fast.engine import TreeEngine

        return TreeEngine(self, self.options.sample_tokens)

    def micro_batches(self, samples: Sequence[Sample]) -> Iterator[Any]:
        """Yield the samples in micro-batches; each computes its `token_logprobs`."""
        if self.options.plain:
            return padded_batches(samples, self.options.train_tokens, self.device)
        from mas_lab.backends.torch.fast.packing import packed_batches

        return packed_batches(samples, self)

    @cached_property
    def by_tree(self) -> bool:
        """Return whether rows are packed as trees."""
        from mas_lab.backends.torch.fast.tree_attention import follows_trees

        return self.options.packing != "padded" and follows_trees(self.net)

    @cached_property
    def cost(self):
        """Return the operations of a forward pass, by its length."""
        from mas_lab.backends.torch.fast.packing import Cost

        return Cost.of(self.net)

    def add_adapter(self, name: str, rank: int) -> None:
        """One more LoRA adapter on every linear layer; torch's generator decides its start."""
        config = LoraConfig(
            r=rank, lora_alpha=self.options.alpha * rank, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        if self.peft is None:
            with warnings.catch_warnings():  # PEFT asks transformers by a name that is going away
                warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
                self.peft = get_peft_model(self.net, config, adapter_name=name)
        else:
            self.peft.add_adapter(name, config)

    def _dtype(self) -> torch.dtype:
        if self.options.dtype is not None:
            return getattr(torch, self.options.dtype)
        if self.device.type != "cuda":
            return torch.float32
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16
        return torch.float16 if self.lora else torch.float32

    def read(self, where: str, dtype: torch.dtype):
        """A transformers model from a directory or hub id, on this device, dropout off."""
        config = model_config(where)
        # The fused kernels drop a soft cap on the scores without a word.
        capped = getattr(config.get_text_config(), "attn_logit_softcapping", None)
        with quiet():
            net = AutoModelForCausalLM.from_pretrained(
                where, dtype=dtype, attn_implementation="eager" if capped else None, trust_remote_code=False
            )
        # A padding_idx would drop the gradient of that token wherever it is really read (pad == eos in a chat).
        net.get_input_embeddings().padding_idx = None
        net = net.to(self.device).eval()
        if self.device.type == "cpu":
            own_memory(net)
        if not self.options.plain:
            from mas_lab.backends.torch.fast.lean_norm import lean_norms

            lean_norms(net)
        return net

    @property
    def model(self):
        return self.net if self.peft is None else self.peft

    def eos_ids(self) -> frozenset[int]:
        """Ids that end a completion: the tokenizer's and the generation config's."""
        config = self.net.generation_config.eos_token_id if self.net.generation_config else None
        listed = config if isinstance(config, (list, tuple)) else [config]
        return frozenset(i for i in (*listed, self.tokenizer.eos_token_id) if i is not None)

    def computing(self):
        """The precision of the products: weights that are trained in full stay in float32 beneath it."""
        lowered = self.dtype != torch.float32 and self.net.dtype == torch.float32
        return torch.autocast(self.device.type, self.dtype, enabled=lowered)

    def refuse_slopes(self, policy: str) -> None:
        """Raises PolicyError, which names the policy, where the kernels have no forward-mode derivative."""

    @contextmanager
    def reference(self) -> Iterator[Any]:
        """The frozen start: the base without adapters, or a copy of the source, loaded when first asked for."""
        if self.peft is not None:
            with self.peft.disable_adapter():
                yield self.net
            return
        if self._reference is None:
            self.source.check() if self.source.digest else None
            self._reference = self.read(self.source.location(), self.net.dtype).requires_grad_(False)
        yield self._reference
