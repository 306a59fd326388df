"""Weights in the form that vLLM takes: one adapter, or a whole model, as files or tensors.

vLLM's CPU attention knows few head sizes, and the pocket models have smaller ones. `Heads` makes an equal model with
wider heads. Zeros are added to queries, keys, values and to the layers that read them. The norms of queries and keys
and the base of the rotation compensate for the new width. No log-probability changes beyond float noise. Leaves out:
quantised weights.
"""

import json
import shutil
from collections.abc import Iterator
from math import sqrt
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from mas_lab.backends.torch import state as torch_state
from mas_lab.backends.torch.source import head_size
from mas_lab.policy import PolicyError


class Heads:
    """Maps the tensors of a Qwen3 with heads of `size` to an equal model with heads of `wide`, by their names.

    A wide head holds the narrow head's first half at its start and the second half in its middle. The reason is that
    the rotation turns dimension i together with dimension i + size / 2. The angle theta^(-2i / size) stays the same if
    theta becomes theta^(wide / size). The mean square of a wide head is size / wide times the narrow head's, and its
    scores are divided by sqrt(wide). The keys' norm is therefore multiplied by sqrt(size / wide).
    """

    def __init__(self, size: int, wide: int):
        self.size, self.wide = size, wide
        half = size // 2
        self.places = torch.tensor([*range(half), *range(wide // 2, wide // 2 + half)])

    @classmethod
    def fitting(cls, config, sizes: list[int]) -> "Heads | None":
        """Return the mapping to the smallest of `sizes` that holds this model's heads; `None` if they fit already."""
        size = head_size(config)
        if size in sizes:
            return None
        wider = [candidate for candidate in sizes if candidate > size]
        if not wider or config.model_type != "qwen3" or config.rope_parameters["rope_type"] != "default":
            raise PolicyError(
                f"vLLM on a CPU takes attention heads of {', '.join(map(str, sizes))}; a {config.model_type}'s here "
                f"have {size}, and only a Qwen3's can be widened; use backend='torch', or a GPU"
            )
        return cls(size, min(wider))

    def widen(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        if "q_norm" in name or "k_norm" in name:
            scale = sqrt(self.size / self.wide) if "k_norm" in name else 1.0
            return self._spread(tensor * scale, 0)
        if any(part in name for part in ("q_proj", "k_proj", "v_proj")) and "lora_A" not in name:
            return self._spread(tensor, 0)
        if "o_proj" in name and "lora_B" not in name and tensor.ndim == 2:
            return self._spread(tensor, 1)
        return tensor

    def _spread(self, tensor: torch.Tensor, axis: int) -> torch.Tensor:
        heads = tensor.shape[axis] // self.size
        narrow = tensor.detach().unflatten(axis, (heads, self.size))
        shape = [*narrow.shape]
        shape[axis + 1] = self.wide
        spread = narrow.new_zeros(shape)
        spread.index_copy_(axis + 1, self.places.to(narrow.device), narrow)
        return spread.flatten(axis, axis + 1)

    def widen_file(self, path: Path) -> None:
        wide = {name: self.widen(name, tensor).contiguous() for name, tensor in load_file(path).items()}
        save_file(wide, path, {"format": "pt"})

    def widen_model(self, directory: Path) -> None:
        """Widen the model in `directory`, in Hugging Face format."""
        for path in directory.glob("*.safetensors"):
            self.widen_file(path)
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        config["head_dim"] = self.wide
        config["rope_parameters"]["rope_theta"] **= self.wide / self.size
        (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")


def widened(model, folder: Path) -> tuple[str, Heads | None]:
    """Return a directory (or hub id) from which vLLM can load the model's start, and how its heads were widened."""
    if model.device.type != "cpu":
        return model.weights, None
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    heads = Heads.fitting(model.net.config, CPUAttentionBackend.get_supported_head_sizes())
    if heads is None:
        return model.weights, None
    if not Path(model.weights).is_dir():
        raise PolicyError(f"{model.weights}: its attention heads fit vLLM's CPU build only from a local directory")
    shutil.copytree(model.weights, folder / "base", dirs_exist_ok=True)
    heads.widen_model(folder / "base")
    return str(folder / "base"), heads


def save_for_vllm(policy, directory: Path, heads: Heads | None) -> None:
    """Write a policy's weights as files: an adapter in PEFT format, or a whole model."""
    torch_state.save_weights(policy, directory)
    if heads is not None and policy.adapter is None:
        heads.widen_model(directory)
    elif heads is not None:
        heads.widen_file(directory / torch_state.ADAPTER)


def tensors_for_vllm(policy, heads: Heads | None) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield all weights of a policy that trains them all, by their names in a checkpoint."""
    for name, parameter in policy.shared.net.named_parameters():  # those that text does not train, too
        yield name, parameter.detach() if heads is None else heads.widen(name, parameter)
