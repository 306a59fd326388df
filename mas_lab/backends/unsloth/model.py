"""Unsloth as a back end: its weights (4 or 16 bit), its kernels and adapters under the same policies and cells.

What is Unsloth's: reading and patching the model (`FastLanguageModel`), the fused kernels of the forward and backward
pass, the first adapter, vLLM over the same weights. What is ours: the optimizer, and the sampler where vLLM is not.
Its kernels compute one adapter at a time and follow no trees: rows are padded, and each adapter samples its own batch.
Leaves out: Apple silicon (Unsloth trains with MLX there), Intel GPUs, and forward-mode derivatives on a GPU.
"""

import contextlib
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import ClassVar

import torch
from peft import LoraConfig

from mas_lab.backends.torch.fast.decoders import RowDecoder
from mas_lab.backends.torch.fast.engine import Chunk, TorchEngine
from mas_lab.backends.torch.fast.lean_norm import lean_norms
from mas_lab.backends.torch.model import Options, TorchModel, quiet
from mas_lab.backends.torch.source import model_config
from mas_lab.backends.unsloth.decoders import EmbeddingDecoder, WholeDecoder, decodes_exactly
from mas_lab.backends.unsloth.importing import DEVICES, import_unsloth
from mas_lab.policy import Completion, PolicyError

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The layers that get an adapter: those whose products Unsloth's kernels fuse with it."""


@dataclass(frozen=True)
class UnslothOptions(Options):
    """`Options`, and Unsloth's own. `dtype=None`: bfloat16 where the GPU has it, float16 where not (a T4), float32 on a
    CPU."""

    of_the_machine: ClassVar[tuple[str, ...]] = (
        "device", "fast_inference", "gpu_memory_utilization", "tolerance",
    )  # fmt: skip
    sleep: ClassVar[bool] = False
    shared_dir: ClassVar[None] = None
    """What `VllmEngine` asks of its options."""

    packing: str = "padded"
    """Always: the kernels take no tree mask."""
    load_in_4bit: bool = False
    """The frozen base in NF4 (bitsandbytes): a quarter of the memory; needs lora=."""
    fast_inference: bool | None = None
    """vLLM inside Unsloth, over the very weights that are trained. `None`: where `why_not_fast` knows no reason not
    to. It has not been run on a GPU yet; `False` samples as everywhere else."""
    gpu_memory_utilization: float = 0.5
    """The share of the GPU that vLLM takes, under fast inference."""
    tolerance: float | None = None
    """Under fast inference, see `VllmOptions`."""
    max_seq_length: int = 2048
    """The longest prompt plus completion. Unsloth cuts off what is longer, so longer requests are refused."""

    def __post_init__(self):
        super().__post_init__()
        if self.packing == "packed":
            raise PolicyError('packing="packed": Unsloth\'s kernels take no tree mask; leave it out, rows are padded')


class UnslothModel(TorchModel):
    """See `TorchModel`. Adapters cover the attention and MLP projections of every layer."""

    backend = "unsloth"
    Options = UnslothOptions

    def __init__(self, source, options: UnslothOptions, template, lora=None, weights=None):
        self.fast = import_unsloth()
        kind = DEVICES[self.fast.DEVICE_TYPE]
        if options.device is not None and torch.device(options.device).type != kind:
            raise PolicyError(
                f"device={options.device!r}: Unsloth chose {kind!r} when it was imported, for the whole process. For "
                "the CPU on a machine with a GPU, set UNSLOTH_FORCE_CPU=1 before Python starts"
            )
        if options.load_in_4bit and not lora:
            raise PolicyError("load_in_4bit: 4-bit weights cannot be trained themselves; add lora=, the adapter's rank")
        self.is_fast = self._decide_fast(options, lora, kind)
        super().__init__(source, options, template, lora, weights)
        self.context = min(self.context, options.max_seq_length)

    def read(self, where: str, dtype: torch.dtype):
        """A model from a directory or hub id through Unsloth, dropout off. On a CPU that is plain transformers."""
        options = self.options
        with quiet():
            net, _ = self.fast.FastLanguageModel.from_pretrained(
                model_name=where,
                max_seq_length=min(options.max_seq_length, model_config(where).max_position_embeddings),
                dtype=dtype,
                load_in_4bit=options.load_in_4bit,
                full_finetuning=self.lora is None,
                use_gradient_checkpointing=False,
                use_exact_model_name=True,  # what was asked for, not a quantized copy under another name
                **(self._fast_arguments() if self.is_fast else {}),
                **({"device_map": {"": str(self.device)}} if self.device.index is not None else {}),
            )
        if options.load_in_4bit and not any(type(module).__name__ == "Linear4bit" for module in net.modules()):
            raise PolicyError(
                f"load_in_4bit: Unsloth read {where} without quantizing it (its output above says why; it needs a "
                "bitsandbytes that works here); leave load_in_4bit out"
            )
        net.get_input_embeddings().padding_idx = None  # see TorchModel.read
        lean_norms(net)
        return net.eval()

    def _decide_fast(self, options: UnslothOptions, lora, kind: str) -> bool:
        why_not = why_not_fast(lora is not None, kind)
        if options.fast_inference and why_not:
            raise PolicyError(f"fast_inference: {why_not}; leave it out, and Unsloth's model samples as it trains")
        return why_not is None and options.fast_inference is not False

    def _fast_arguments(self) -> dict:
        adapters, rank = self.lora
        return {
            "fast_inference": True,
            "max_loras": adapters,  # 1 where it is not said: every other agent's adapter would be swapped in and out
            "max_lora_rank": rank,
            "gpu_memory_utilization": self.options.gpu_memory_utilization,
        }

    def add_adapter(self, name: str, rank: int) -> None:
        """One more adapter; torch's generator decides its start. The first one goes through Unsloth, for its kernels.

        That one is called "default" and starts by a seed of its own, so it is replaced by one that does neither.
        """
        seed = torch.initial_seed()
        targets = [n for n in LINEAR if any(module.endswith("." + n) for module, _ in self.net.named_modules())]
        config = LoraConfig(r=rank, lora_alpha=self.options.alpha * rank, target_modules=targets, task_type="CAUSAL_LM")
        first = self.peft is None
        if first:
            self.peft = self.fast.FastLanguageModel.get_peft_model(
                self.net, r=rank, lora_alpha=config.lora_alpha, target_modules=targets, lora_dropout=0.0, bias="none",
                use_gradient_checkpointing=False,
            )  # fmt: skip
            torch.manual_seed(seed)
        self.peft.add_adapter(name, copy(config))
        self.peft.set_adapter(name)
        if first:
            self.peft.delete_adapter("default")
        self.net.eval()

    def make_engine(self):
        if self.is_fast:
            from mas_lab.backends.unsloth.with_vllm import FastEngine

            return FastEngine(self)
        return UnslothEngine(self, self.options.sample_tokens)

    def computing(self):
        """On a GPU, autocast as in Unsloth's own trainers: adapters are float32 over a 16-bit base."""
        if self.device.type == "cpu":
            return super().computing()
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)

    def refuse_slopes(self, policy: str) -> None:
        """Raises PolicyError where the kernels have no forward-mode derivative: everywhere but on a CPU."""
        if self.device.type != "cpu":
            raise PolicyError(
                f"policy {policy!r}: the exact shares of a gradient need a forward-mode derivative, which Unsloth's "
                'kernels do not have; attribute a copy of the policy under backend="torch"'
            )

    @cached_property
    def decoder(self) -> type[RowDecoder]:
        """The first of the decoders whose logits are those of plain forward passes: tried, not believed."""
        tried = (RowDecoder,) if self.device.type == "cpu" else (EmbeddingDecoder, WholeDecoder)
        for decoder in tried:
            if decodes_exactly(self, decoder):
                return decoder
        raise PolicyError(
            f"{self.source.name}: Unsloth {self.fast.__version__} gives other logits when it decodes than when it "
            'reads whole rows; use backend="torch"'
        )


def why_not_fast(lora: bool, kind: str) -> str | None:
    """Why vLLM cannot sample inside Unsloth here, or `None`. `kind` of device: "cpu" or "cuda"."""
    if kind == "cpu":
        return "it needs a GPU"
    if not lora:
        return "it serves adapters over a frozen base, and all weights are trained; add lora="
    if find_spec("vllm") is None:
        return "it needs the package vllm"
    major, minor = torch.cuda.get_device_capability()
    return None if major >= 8 else f"this GPU's compute capability is {major}.{minor}, and it needs 8.0 (a T4 has 7.5)"


class UnslothEngine(TorchEngine):
    """Samples with exactly one adapter active, whose rows alone are in the batch."""

    def _chunks(self, pending) -> Iterator[Chunk]:
        by_adapter: dict[str | None, list] = {}
        for one in pending:
            by_adapter.setdefault(one[1].adapter, []).append(one)
        for own in by_adapter.values():
            yield from super()._chunks(own)

    def _complete(self, chunk: Chunk) -> list[Completion]:
        if self.model.peft is not None:
            self.model.peft.set_adapter(chunk.adapters[0])
        return super()._complete(chunk)

    def _decoder(self, chunk: Chunk, stack: contextlib.ExitStack) -> RowDecoder:
        return self.model.decoder(self.model.net, chunk.prompts, chunk.adapters, None, chunk.room)
