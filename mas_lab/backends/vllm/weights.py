"""An equal model whose attention heads vLLM's CPU build takes.

Its CPU attention knows few head sizes, and the pocket models have smaller ones. So torch and vLLM read a copy with
wider heads: zeros are added to queries, keys, values and to the layers that read them. The norms of queries and keys
and the base of the rotation compensate for the new width. No log-probability changes beyond float noise. Leaves out:
quantised weights.
"""

import json
import shutil
from collections.abc import Sequence
from math import sqrt
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from mas_lab.backends.torch.source import head_size, model_config
from mas_lab.policy import PolicyError


def widened(where: str, folder: Path, sizes: Sequence[int]) -> str:
    """Return where the model has heads of one of `sizes`: a directory or hub id, or `folder` with a wider copy.

    A wide head holds the narrow head's first half at its start and the second half in its middle. The reason is that
    the rotation turns dimension i together with dimension i + size / 2. The angle theta^(-2i / size) stays the same if
    theta becomes theta^(wide / size). The mean square of a wide head is size / wide times the narrow head's, and its
    scores are divided by sqrt(wide). The keys' norm is therefore multiplied by sqrt(size / wide).
    """
    config = model_config(where)
    size, kind = head_size(config), config.model_type
    if size in sizes:
        return where
    wide = min((one for one in sizes if one > size), default=None)
    if wide is None or kind != "qwen3" or config.rope_parameters["rope_type"] != "default" or not Path(where).is_dir():
        raise PolicyError(
            f"{where}: vLLM on a CPU takes attention heads of {', '.join(map(str, sizes))}; those of this {kind} have "
            f"{size}, and only a Qwen3's in a local directory can be widened; use backend='torch', or a GPU"
        )
    shutil.copytree(where, folder)
    places = torch.tensor([*range(size // 2), *range(wide // 2, wide // 2 + size // 2)])

    def spread(tensor: torch.Tensor, axis: int) -> torch.Tensor:
        narrow = tensor.unflatten(axis, (-1, size))
        wider = narrow.new_zeros(*narrow.shape[: axis + 1], wide, *narrow.shape[axis + 2 :])
        return wider.index_copy_(axis + 1, places, narrow).flatten(axis, axis + 1)

    for path in folder.glob("*.safetensors"):
        tensors = load_file(path)
        for name, tensor in tensors.items():
            if "k_norm" in name:
                tensors[name] = spread(tensor * sqrt(size / wide), 0)
            elif any(part in name for part in ("q_norm", "q_proj", "k_proj", "v_proj")):
                tensors[name] = spread(tensor, 0)
            elif "o_proj.weight" in name:
                tensors[name] = spread(tensor, 1)
        save_file(tensors, path, {"format": "pt"})
    path = folder / "config.json"
    changed = json.loads(path.read_text(encoding="utf-8"))
    changed["head_dim"] = wide
    changed["rope_parameters"]["rope_theta"] **= wide / size
    path.write_text(json.dumps(changed), encoding="utf-8")
    return str(folder)
