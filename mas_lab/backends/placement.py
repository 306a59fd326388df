"""Placement of policies on devices for training and sampling, and a check of the memory before anything is loaded.

    plan = lab.Placement({"solver": "Qwen3-1.7B", "verifier": "Qwen3-0.6B"}, lora=16)      # one agent per GPU
    team = lab.Team({name: lab.load_policy(hub_id[name], **plan.options(name)) for name in plan})

A policy's needs are its `ModelSpec`. Devices come from torch, or from you for machines that you do not have. A policy
that cannot fit is refused, and the error says what would fit. Leaves out: loading, and starting processes
(`accelerate launch`).
"""

import os
from collections.abc import Iterator, Mapping
from math import ceil
from typing import TYPE_CHECKING, Any

import pandas as pd

from mas_lab.backends.memory import GIB
from mas_lab.backends.model_spec import ModelSpec, called, savings

if TYPE_CHECKING:
    from transformers import PretrainedConfig

CONTEXT = 0.75
"""GiB of each GPU for its context, the kernels' buffers and fragmentation."""


class PlacementError(ValueError):
    """Error of a policy that does not fit; it names the device, the memory needed and left, and what would fit."""


class Placement(Mapping[str, ModelSpec]):
    """Policies by name on devices; it shows itself as two tables, by policy and by device.

    Args:
        policies: The model, or a `ModelSpec`, of each policy.
        devices: GiB of each device. `None`: the devices that torch finds.
        every: One process per device, each with every policy (`accelerate launch`). Default: each policy on one device.
        **common: Fields of `ModelSpec` for the policies that are given as a model.

    Attributes:
        devices: GiB of each device.
        every: True if every device holds every policy.

    Raises:
        PlacementError: A policy does not fit, or names an unknown device.
    """

    def __init__(
        self,
        policies: "Mapping[str, str | PretrainedConfig | ModelSpec]",
        devices: Mapping[str, float] | None = None,
        every: bool = False,
        **common: Any,
    ):
        self.devices, self.every = dict(devices or found_devices()), every
        self._wishes = {
            name: wish if isinstance(wish, ModelSpec) else ModelSpec(wish, **common) for name, wish in policies.items()
        }
        self._used = dict.fromkeys(self.devices, 0.0)
        self._at: dict[str, str] = {}
        for name in sorted(self._wishes, key=lambda name: (self[name].device is None, -self[name].memory().peak)):
            self._place(name)

    def _place(self, name: str) -> None:
        wish = self[name]
        device = wish.device or max(self.devices, key=self._left)
        if self.every and wish.sampling_devices(device) != (device,):
            raise PlacementError(
                f"{name!r}: with every=True each process samples where it trains; leave out samples_on"
            )
        for used in (device, *wish.sampling_devices(device)):
            if used not in self.devices:
                raise PlacementError(f"{name!r} is wanted on {used}; the devices are {', '.join(self.devices)}")
        for here in self.devices if self.every else (device,):
            needs = wish.needs(here)
            for used, gib in needs.items():
                if gib > self._left(used):
                    raise PlacementError(self._refusal(name, used, gib))
            for used, gib in needs.items():
                self._used[used] += gib
        self._at[name] = device

    def _left(self, device: str) -> float:
        return self.devices[device] - (CONTEXT if device.startswith("cuda") else 0.0) - self._used[device]

    def _refusal(self, name: str, device: str, gib: float) -> str:
        wish, left = self[name], self._left(device)
        others = f", {self._used[device]:.1f} of them taken by {', '.join(self._at)}" if self._used[device] else ""
        fitting = [
            f"{words}: {less:.1f} GiB"
            for words, other in savings(wish)
            if (less := other.needs(device).get(device, 0.0)) <= left
        ]
        return (
            f"{name!r} ({called(wish.model)}, {wish.trained}) needs {gib:.1f} GiB on {device}, where "
            f"{max(left, 0):.1f} of {self.devices[device]:.1f} GiB are left{others}. "
            + (f"What would fit: {'; '.join(fitting)}" if fitting else "No setting makes it fit; take a smaller model")
        )

    def options(self, name: str) -> dict[str, Any]:
        """Return the arguments of `load_policy` (with several adapters: `load_base`) besides the model.

        Args:
            name: Name of the policy.

        Returns:
            Keyword arguments. With `every` they have no device, because each process takes its own.
        """
        wish, device = self[name], self._at[name]
        told: dict[str, Any] = {"backend": wish.backend, "train_tokens": wish.train_tokens}
        told |= {"sample_tokens": wish.sample_tokens} | ({} if self.every else {"device": device})
        if wish.lora is not None:
            told |= {"lora": wish.lora} if wish.adapters == 1 else {"adapters": wish.adapters, "rank": wish.lora}
        if wish.backend == "unsloth":
            told |= {"load_in_4bit": wish.bits == 4}
        return told | (self._engine(wish, device) if wish.backend == "vllm" else {})

    def _engine(self, wish: ModelSpec, device: str) -> dict[str, Any]:
        """Return vLLM's options: its place, and its share of the memory there, including one GiB of buffers."""
        apart = wish.sampling_devices(device)
        room = min(self.devices[one] for one in apart)
        share = ceil(100 * (wish.engine / GIB / len(apart) + 1) / room) / 100
        told = {"memory": share, "sleep": wish.sleep, "tensor_parallel": len(apart)}
        if apart == (device,):
            return told
        return told | {"where": "server", "gpus": ",".join(one.partition(":")[2] for one in apart)}

    @property
    def policies_table(self) -> pd.DataFrame:
        """Return a table with a row per policy; sizes are in GiB."""
        rows = []
        for name, wish in self.items():
            found, here = wish.memory(), self._at[name]
            where = f"each of {len(self.devices)}" if self.every else here
            samples = where if wish.sampling_devices(here) == (here,) else ", ".join(wish.sampling_devices(here))
            rows.append({
                "policy": name, "model": called(wish.model), "learns": wish.trained,
                "trains on": "nowhere" if wish.frozen else where, "samples on": samples,
                "weights": (found.weights + found.adapters) / GIB,
                "gradients, optimizer": (found.gradients + found.optimizer) / GIB,
                "activations": found.activations / GIB,
                "keys, values": found.kv_cache / GIB,
                "vLLM's copy": max(0.0, wish.engine - found.kv_cache) / GIB,
                "in all": sum(wish.needs(here).values()),
            })  # fmt: skip
        return pd.DataFrame(rows).set_index("policy")

    @property
    def devices_table(self) -> pd.DataFrame:
        """Return a table with a row per device, in GiB; `left` remains after the policies and the device's needs."""
        rows = {name: {"capacity": gib, "used": self._used[name], "left": self._left(name)}
                for name, gib in self.devices.items()}  # fmt: skip
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("device")

    def __getitem__(self, name: str) -> ModelSpec:
        return self._wishes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._wishes)

    def __len__(self) -> int:
        return len(self._wishes)

    def __repr__(self) -> str:
        tables = (self.policies_table, self.devices_table)
        return "\n\n".join(table.round(2).to_string() for table in tables) + "\n(GiB)"

    def _repr_html_(self) -> str:
        tables = (self.policies_table, self.devices_table)
        return "".join(table.to_html(float_format="{:.2f}".format) for table in tables) + "<p>GiB</p>"


def found_devices() -> dict[str, float]:
    """Return every CUDA device with its GiB; without one, the CPU with the machine's memory."""
    import torch

    found = [torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count())]
    if found:
        return {f"cuda:{i}": total / GIB for i, total in enumerate(found)}
    if not hasattr(os, "sysconf"):
        raise PlacementError("no CUDA device works here, and this system does not tell its memory: pass devices=")
    return {"cpu": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB}
