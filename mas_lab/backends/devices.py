"""The devices that work here; each of them is tried.

Leaves out: the device that a policy takes (its options, `placement`).
"""

from typing import Any


def devices() -> str:
    """Return every device that torch names, each with the result of a real matrix product."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return f"torch cannot be imported: {_first_line(error)}"
    names = {"cpu": "cpu"}
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        memory = about.total_memory / 2**30
        names[f"cuda:{i}"] = f"cuda:{i} {about.name}, {memory:.0f} GiB, compute {about.major}.{about.minor}"
    if torch.backends.mps.is_available():
        names["mps"] = "mps"
    return "; ".join(f"{name}: {probe(device)}" for device, name in names.items())


def called(device: Any) -> str:
    """Return the name of a torch device for a record: "cpu", "mps", or the model of the GPU."""
    import torch

    kind = getattr(device, "type", str(device))
    return torch.cuda.get_device_name(device) if kind == "cuda" else kind


def probe(device: str) -> str:
    """Return "works", or an error message, after a product and its gradient on `device`.

    The reference is the same product in float64 on the CPU. A P100 under a recent torch reports itself as available and
    fails at this, its first operation.
    """
    import torch

    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(64, 64, generator=draw) for _ in range(2))
    try:
        on_device = a.to(device).requires_grad_()
        product = on_device @ b.to(device)
        product.sum().backward()
        wrong = (product.detach().cpu().double() - a.double() @ b.double()).abs().max().item()
        wrong = max(wrong, (on_device.grad.cpu().double() - b.double().sum(1)).abs().max().item())
    except Exception as error:  # any error of a driver is the result
        return f"FAILS at the first operation ({_first_line(error)})"
    return "works" if wrong < 0.1 else f"WRONG results (off by {wrong:.2g})"


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
