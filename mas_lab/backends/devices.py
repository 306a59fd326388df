"""The devices that torch finds, their memory, and whether they compute.

It imports torch at first use. Leaves out: who uses which device (`placement`).
"""

import psutil

GIB = 2**30


def found_devices() -> dict[str, float]:
    """Return every CUDA device with its GiB; without one, the CPU with the machine's memory."""
    import torch

    found = [torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count())]
    if found:
        return {f"cuda:{i}": total / GIB for i, total in enumerate(found)}
    return {"cpu": psutil.virtual_memory().total / GIB}


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
        return f"FAILS at the first operation ({first_line(error)})"
    return "works" if wrong < 0.1 else f"WRONG results (off by {wrong:.2g})"


def first_line(error: BaseException) -> str:
    """Return the type of an error, and the first line of its message."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0] or 'no message'}"
