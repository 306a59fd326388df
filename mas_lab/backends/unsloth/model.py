"""Unsloth as a back end: its weights (4 or 16 bit), kernels and adapters under the same policies and cells.

Unsloth reads and patches the model (`FastLanguageModel`). It has the fused kernels of the forward and backward pass,
and the first adapter. The optimizer and the sampler are ours. The kernels compute one adapter at a time and no trees,
so rows are padded, and each adapter samples its own batch. Leaves out: Apple silicon (Unsloth trains with MLX there),
Intel GPUs, vLLM inside Unsloth, and forward-mode derivatives on a GPU.
"""

from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig

from mas_lab.backends.torch.architectures import Ways
from mas_lab.backends.torch.fast.fused import lean_norms
from mas_lab.backends.torch.model import Options, TorchModel, quiet
from mas_lab.backends.torch.padded import PaddedEngine
from mas_lab.backends.torch.source import model_config
from mas_lab.backends.unsloth.importing import DEVICES, import_unsloth
from mas_lab.policy import PolicyError


@dataclass(frozen=True)
class UnslothOptions(Options):
    """`Options`, and Unsloth's own.

    `dtype=None` is bfloat16 if the GPU has it, else float16 (a T4), and float32 on a CPU.
    """

    packing: str = "padded"
    """Always "padded", because the kernels take no tree mask."""
    load_in_4bit: bool = False
    """True: the frozen base is in NF4 (bitsandbytes), which takes a quarter of the memory. It needs lora=."""
    max_seq_length: int = 2048
    """Longest prompt plus completion in tokens. Unsloth cuts off the rest, so longer requests are refused."""

    def __post_init__(self):
        super().__post_init__()
        if self.checkpointing:
            raise PolicyError("checkpointing=True: Unsloth's kernels keep their own activations; lower train_tokens")
        if self.packing == "packed":
            raise PolicyError('packing="packed": Unsloth\'s kernels take no tree mask; leave it out, rows are padded')


class UnslothModel(TorchModel):
    """A `TorchModel` of Unsloth; adapters cover the attention and MLP projections of every layer."""

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
        super().__init__(source, options, template, lora, weights)
        self.context = min(self.context, options.max_seq_length)

    def read(self, where: str, dtype: torch.dtype):
        """Read a model from a directory or hub id through Unsloth, with dropout off.

        On a CPU, Unsloth reads it as plain transformers does.
        """
        options = self.options
        with quiet():
            net, _ = self.fast.FastLanguageModel.from_pretrained(
                model_name=where,
                max_seq_length=min(options.max_seq_length, model_config(where).max_position_embeddings),
                dtype=dtype,
                load_in_4bit=options.load_in_4bit,
                full_finetuning=self.lora is None,
                use_gradient_checkpointing=False,
                use_exact_model_name=True,  # not a quantized copy under another name
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

    def add_adapter(self, name: str, rank: int) -> None:
        """Add one more adapter; torch's generator decides its initial weights.

        The first adapter goes through Unsloth, which then uses its kernels. Unsloth names it "default" and uses its own
        seed, so it is replaced by one with our name and seed.
        """
        seed = torch.initial_seed()
        config = LoraConfig(r=rank, lora_alpha=self.options.alpha * rank, task_type="CAUSAL_LM", **self.adapted())
        first = self.peft is None
        if first:
            self.peft = self.fast.FastLanguageModel.get_peft_model(
                self.net, r=rank, lora_alpha=config.lora_alpha, target_modules=self.adapted()["target_modules"],
                lora_dropout=0.0, bias="none", use_gradient_checkpointing=False,
            )  # fmt: skip
            torch.manual_seed(seed)
        self.peft.add_adapter(name, copy(config))
        self.peft.set_adapter(name)
        if first:
            self.peft.delete_adapter("default")
        self.net.eval()

    def _layers_to_checkpoint(self) -> list[torch.nn.Module]:
        return []

    def find_ways(self) -> Ways:
        """Return the padded way."""
        return Ways()

    def make_engine(self):
        return PaddedEngine(self) if self.device.type == "cpu" else UnslothEngine(self)

    has_forward_mode = property(lambda self: self.device.type == "cpu")


class UnslothEngine(PaddedEngine):
    """An engine that feeds embeddings, and keeps keys and values as plain pairs per layer.

    Given token ids and a cache, the model would take a path with buffers of its own. Given embeddings, it takes the
    path on which it trains.
    """

    def inputs(self, ids_RL: torch.Tensor, cache: Any) -> dict[str, Any]:
        """Return the newest tokens, embedded, and the cache of those before as arguments of the model."""
        embedded_RLh = self.model.net.get_input_embeddings()(ids_RL)
        pairs = None if cache is None else [pair[:2] for pair in cache]
        return {"inputs_embeds": embedded_RLh, "past_key_values": pairs, "use_cache": True, "logits_to_keep": 1}
