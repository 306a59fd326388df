"""A Hugging Face causal LM in memory, with the parts that its policies share: tokenizer, engine, source, options.

Leaves out: optimizers and gradients (`policy`), sampling (`engine`).
"""

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging

from mas_lab.backends.devices import probe
from mas_lab.backends.placement import CHECKPOINTED, count_weights
from mas_lab.backends.torch import source as sources
from mas_lab.backends.torch import threads
from mas_lab.backends.torch.architectures import Ways, find_ways
from mas_lab.backends.torch.fast.engine import TreeEngine
from mas_lab.backends.torch.fast.fused import lean_norms, lora_forward
from mas_lab.backends.torch.fast.packing import ChunkedBatch, Cost, packed_batches
from mas_lab.backends.torch.fast.tree_attention import NAME, attending
from mas_lab.backends.torch.padded import PaddedBatch, PaddedEngine, padded_batches
from mas_lab.backends.torch.source import Source, model_config, reading
from mas_lab.locks import ModelLock
from mas_lab.policy import NotFiniteError, PolicyError, Sample

OPTIMIZERS = ("adamw", "sgd")
PACKINGS = ("auto", "packed", "padded")
ADAPTED = (
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj", "c_attn",
    "c_fc", "c_proj", "query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h", "fc1", "fc2",
)  # fmt: skip
"""Last names of the linear layers of attention and MLP, which get an adapter."""
NO_TEXT = re.compile("vision|visual|image|audio|multi_modal")
"""Parts of the names of layers that text does not reach."""
BACK = "go back to weights that were kept (policy.load(folder), lab.load_run(run).team())"


@dataclass(frozen=True)
class Options:
    """Options of a torch policy. The first six do not change what is learned, up to float noise."""

    of_the_machine: ClassVar[tuple[str, ...]] = ("device", "checkpointing")
    """Options that a resumed run may change."""

    device: str | None = None
    """`None`: CUDA if a trial product works there, else the CPU."""
    dtype: str | None = None
    """Type of the products. `None`: float32 on a CPU, but bfloat16 above 50 M weights where that is 1.5 times as fast;
    on CUDA bfloat16 if supported, else float16 (LoRA) or float32."""
    packing: str = "auto"
    """"packed": one tree per prompt; "padded": one row per sample; "auto": per prompt, by counted operations."""
    train_tokens: int = 4096
    """Tokens per micro-batch of the update."""
    sample_tokens: int = 65536
    """Tokens that are sampled at once: prompts, and completions at full length."""
    checkpointing: bool | None = None
    """True: the update keeps only each layer's input, and computes the layer again in the backward pass (gradient
    checkpointing, arXiv 1604.06174): a third more operations. `None`: above `CHECKPOINTED` weights."""
    optimizer: str | Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer] = "adamw"
    """"adamw", plain "sgd", or a function that makes an optimizer of parameters; its rate is the policy's `lr`. The
    step of SGD grows with the gradient; AdamW divides this size out."""
    alpha: float = 2.0
    """Scale of a LoRA adapter's output (PEFT's lora_alpha / rank)."""
    plain: bool = False
    """Sample and train with the readable padded code (`padded`) instead of the fast code (`fast`)."""

    def __post_init__(self):
        for name, known in (("packing", PACKINGS), ("optimizer", OPTIMIZERS)):
            if getattr(self, name) not in known and not callable(getattr(self, name)):
                raise PolicyError(f"{name} {getattr(self, name)!r}; known: {', '.join(known)}")


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the progress bars of transformers inside the `with` block, because small models load and save often."""
    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()


def pick_device() -> str:
    """Return CUDA if a trial product works there, else the CPU.

    An old card may be visible and fail at the first operation. If a launcher started several processes, each gets the
    device of its `LOCAL_RANK`.
    """
    if not torch.cuda.is_available():
        return "cpu"
    device = f"cuda:{os.environ['LOCAL_RANK']}" if "LOCAL_RANK" in os.environ else "cuda"
    return device if probe(device) == "works" else "cpu"


def require_finite(tensors: Mapping[str, torch.Tensor], policy: str, when: str) -> None:
    """Raise NotFiniteError with the policy and the parameter if a tensor has no finite norm; one device sync.

    A norm beyond float32 counts as not finite, because such weights do not compute finite values either.
    """
    floating = {name: tensor.detach() for name, tensor in tensors.items() if tensor.is_floating_point()}
    norms = torch._foreach_norm(list(floating.values()), 2, dtype=torch.float32)
    finite = torch.stack([norm.to(norms[0].device) for norm in norms]).isfinite()
    if not finite.all().item():
        name = list(floating)[int((~finite).nonzero()[0])]
        raise NotFiniteError(f"policy {policy!r}: its weights are not finite {when}, the first is {name!r}; {BACK}")


class TorchModel:
    """A model in memory: `net` is the transformers model, and `peft` wraps it if adapters are trained.

    Another back end is a subclass that reads weights, adds adapters or samples in its own way. `lora` is the number and
    the rank of the adapters that will be added, which an engine may need when it starts. `None`: all weights are
    trained.
    """

    backend = "torch"
    Options = Options

    def __init__(self, source: Source, options: Options, template: Mapping[str, Any] | None,
                 lora: tuple[int, int] | None = None, weights: str | Path | None = None):  # fmt: skip
        self.source, self.options, self.template, self.peft = source.pinned(), options, dict(template or {}), None
        self.lora, self.lock = lora, ModelLock()
        self.device = torch.device(options.device or pick_device())
        if self.device.type == "cpu":
            threads.settle_threads()
        self.weights = str(weights or source.location())
        self.dtype = self._dtype()
        self.net = self.read(self.weights, self.dtype if lora else torch.float32)
        if self.device.type == "cpu" and self.net.num_parameters() > threads.LARGE:  # resume in the type of the run
            self.options = replace(options, dtype=str(self.dtype).removeprefix("torch."))
        require_finite(dict(self.net.named_parameters()), self.source.name, f"in {self.weights}")
        self.tokenizer = sources.read_tokenizer(self.weights)
        self.context = sources.context_of(self.net.config)
        self.switch = sources.rotary_switch(self.net.config)
        """The length above which the model changes the factors of its rotation (LongRoPE). `None`: it never does."""
        self.ways = self.find_ways()
        self.engine = self.make_engine()
        self._reference = None
        self._checkpointed = self._layers_to_checkpoint()

    def make_engine(self):
        """Return the engine that samples from this model."""
        return TreeEngine(self) if self.ways.tree else PaddedEngine(self)

    def micro_batches(self, samples: Sequence[Sample], part: slice = slice(None)) -> Iterator[Any]:
        """Yield the samples, or a part of them, in micro-batches, which have a method `token_logprobs`."""
        if self.ways.tree:
            return packed_batches(samples, self, part)
        return padded_batches(
            samples, self, part, PaddedBatch if self.options.plain or not self.ways.padded else ChunkedBatch
        )

    def find_ways(self) -> Ways:
        """Return the ways that are proved for this model."""
        return find_ways(self)

    def is_long(self, policy: str, prompt: int, more: int) -> bool:
        """Return True if a row of `prompt` and up to `more` tokens has the factors of long rows (LongRoPE).

        The longest row of a batch decides, so short and long rows never share one. Raises PolicyError if the row may
        become long after its prompt: its tokens would not have the probabilities with which they were drawn.
        """
        if self.switch is None or prompt + more <= self.switch:
            return False
        if prompt > self.switch:
            return True
        raise PolicyError(
            f"policy {policy!r}: {prompt} prompt tokens and up to {more} more cross {self.switch} tokens, where this "
            f"model changes its rotary factors; lower max_tokens to {self.switch - prompt}, or use longer prompts"
        )

    def class_of(self, sample: Sample) -> int:
        """Return a number that all samples of a micro-batch must share."""
        prompt, more = len(sample.prompt_ids), len(sample.completion_ids)
        return int(self.is_long(self.source.name, prompt, more)) if self.ways.padded else prompt + more

    @cached_property
    def cost(self):
        """Return the function from the length of a forward pass to its operations."""
        return Cost.of(self.net)

    def _layers_to_checkpoint(self) -> list[torch.nn.Module]:
        chosen = self.options.checkpointing
        if not (self.net.num_parameters() > CHECKPOINTED if chosen is None else chosen):
            return []
        self.net.gradient_checkpointing_enable({"use_reentrant": False})
        return [layer for layer in self.net.modules() if isinstance(layer, GradientCheckpointingLayer)]

    @contextmanager
    def checkpointing(self) -> Iterator[None]:
        """Make a backward pass in the `with` block compute layers again, if the option `checkpointing` says so.

        Transformers does this for layers that train; dropout, which lies deeper, stays off. Attention must then be the
        same as in the forward pass.
        """
        by_tree = self._checkpointed and self.ways.tree
        for layer in self._checkpointed:
            layer.training = True
        try:
            with attending(self.net.config, NAME) if by_tree else nullcontext():
                yield
        finally:
            for layer in self._checkpointed:
                layer.training = False

    def add_adapter(self, name: str, rank: int) -> None:
        """Add a LoRA adapter to the linear layers of attention and MLP, with initial weights from torch's generator."""
        if rank > (width := self.net.config.get_text_config().hidden_size):
            raise PolicyError(f"lora={rank}: the rank of an adapter is at most the model's width, {width}")
        from peft import LoraConfig, get_peft_model  # half a second, which full weights do not need

        config = LoraConfig(r=rank, lora_alpha=self.options.alpha * rank, task_type="CAUSAL_LM", **self.adapted())
        if self.peft is None:
            with warnings.catch_warnings():  # PEFT uses a deprecated name of transformers
                warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
                self.peft = get_peft_model(self.net, config, adapter_name=name)
        else:
            self.peft.add_adapter(name, config)
        for layer in self.net.modules():
            if hasattr(layer, "lora_A"):
                layer.cast_input_dtype_enabled = False  # `computing` does it, without a float32 copy of each input
                if not self.options.plain:
                    layer.forward = partial(lora_forward, layer)

    def adapted(self) -> dict[str, Any]:
        """Return the linear layers that get an adapter, as arguments of PEFT; raise PolicyError if there are none."""
        every = [name for name, _ in self.net.named_modules() if name.rpartition(".")[2] in ADAPTED]
        without = [name for name in every if NO_TEXT.search(name)]
        if len(every) == len(without):
            raise PolicyError(f"{self.source.name}: none of its layers can have an adapter; train all weights")
        last = {name.rpartition(".")[2] for name in every}
        return {"target_modules": [name for name in ADAPTED if name in last], "exclude_modules": without or None}

    @property
    def trainable(self) -> dict[str, torch.nn.Parameter]:
        """Return the weights that are trained in full, by name: all but those of encoders of images and sound."""
        return {name: p for name, p in self.net.named_parameters() if not NO_TEXT.search(name)}

    def _dtype(self) -> torch.dtype:
        if self.options.dtype is not None:
            return getattr(torch, self.options.dtype)
        if self.device.type != "cuda":
            config = model_config(self.weights)
            with reading(self.weights, "config.json"):
                return threads.settle_dtype(sum(count_weights(config)[:2]))
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16
        return torch.float16 if self.lora else torch.float32

    def read(self, where: str, dtype: torch.dtype):
        """Read a transformers model from a directory or hub id, on this device, with dropout off."""
        config = model_config(where)
        # The fused kernels silently ignore a soft cap on the scores.
        capped = sources.shape(config, "attn_logit_softcapping")
        with quiet(), reading(where, "config.json or the weights (model.safetensors)"):
            net, found = AutoModelForCausalLM.from_pretrained(
                where, dtype=dtype, attn_implementation="eager" if capped else None, trust_remote_code=False,
                ignore_mismatched_sizes=True, output_loading_info=True,
            )  # fmt: skip
        wrong = [*found["missing_keys"], *found["unexpected_keys"], *(name for name, *_ in found["mismatched_keys"])]
        if wrong:  # transformers would draw random ones
            raise PolicyError(
                f"{where}: {len(wrong)} weights are missing, of another shape or not part of the model, the first is "
                f"{min(wrong)!r}; fetch it again"
            )
        # A padding_idx drops the gradient of that token, also where it is a real input (pad == eos in a chat).
        net.get_input_embeddings().padding_idx = None
        net = net.to(self.device).eval()
        if self.device.type == "cpu":
            # Copy the weights out of the mapped file: products over other alignments differ in their last bits.
            for parameter in net.parameters():
                parameter.data = parameter.data.clone()
        if not self.options.plain:
            lean_norms(net)
        return net

    @property
    def model(self):
        return self.net if self.peft is None else self.peft

    def eos_ids(self) -> frozenset[int]:
        """Return the ids that end a completion, from the tokenizer and the generation config."""
        return sources.eos_ids(self.tokenizer, self.net.generation_config)

    def computing(self):
        """Return a context that sets the precision of products; weights that are trained stay in float32."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)

    def require_drawn(self, logprobs_R: np.ndarray, policies_R: Sequence, at_R: np.ndarray) -> None:
        """Raise NotFiniteError if a token that was drawn for `policies_R[at_R]` has no finite log-probability."""
        lost = np.flatnonzero(~np.isfinite(logprobs_R))
        if len(lost):
            policy = policies_R[at_R[lost[0]]].name
            require_finite(dict(self.net.named_parameters()), policy, "where it samples")
            raise NotFiniteError(
                f"policy {policy!r}: the log-probabilities of what it samples are not finite, though its weights are: "
                f"they have grown too large for {self.dtype}, or the temperature is too low for them; {BACK}"
            )

    has_forward_mode = property(lambda self: self.ways.padded)
    """True if a forward-mode derivative of this model was tested."""

    @contextmanager
    def reference(self) -> Iterator[Any]:
        """Yield the frozen reference: the base without adapters, or a copy of the source, loaded at first use."""
        if self.peft is not None:
            with self.peft.disable_adapter():
                yield self.net
            return
        if self._reference is None:
            self._reference = self.read(self.source.check(), self.net.dtype).requires_grad_(False)
        yield self._reference
