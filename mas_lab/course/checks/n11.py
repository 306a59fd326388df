"""Exercises of notebook 11: a model that fits every GPU, a mean over unequal ranks, settings of a second machine."""

import numpy as np

from mas_lab.course.compare import asked
from mas_lab.course.exercises import NotYet, exercise


@exercise(
    "11.1",
    "Sixteen bytes a weight go into training all of them. Which of them must be trained?",
    "`lab.ModelSpec(qwen3_8b, lora=16)` freezes the base and trains an adapter.",
)
def fits_everywhere(wish, devices):
    from mas_lab.backends.placement import ModelSpec, Placement, PlacementError

    if not isinstance(wish, ModelSpec):
        raise NotYet("a lab.ModelSpec is asked for")
    if wish.frozen:
        raise NotYet("a frozen solver fits, and learns nothing")
    try:
        plan = Placement({"solver": wish}, devices, every=True)
    except PlacementError as refusal:
        raise NotYet(str(refusal)) from None
    if getattr(wish.model, "hidden_size", 0) < 4096:
        raise NotYet("this is not the model of 8.2 billion weights")
    return f"{plan.devices_table['left'].min():.0f} GiB are left on each"


@exercise(
    "11.2",
    "A mean times its number of rows is a sum, and sums can be added.",
    "Weigh each rank's mean by its rows, add, and divide by all rows: the mean of means is right for equal ranks only.",
)
def mean_over_ranks(answer):
    rng = np.random.default_rng(0)
    for ranks in (2, 3, 5):
        rows = rng.integers(1, 9, size=ranks)
        gradients = [rng.normal(size=(int(count), 4)) for count in rows]
        means, ours = np.array([part.mean(axis=0) for part in gradients]), np.concatenate(gradients).mean(axis=0)
        yours = np.asarray(asked(answer, means, rows), dtype=float)
        if yours.shape != ours.shape:
            raise NotYet(f"{ours.shape[0]} weights are asked for, and what came back has the shape {yours.shape}")
        off = ~np.isclose(yours, ours, rtol=1e-6, atol=1e-9)
        if off.any():
            weight = int(np.flatnonzero(off)[0])
            raise NotYet(
                f"ranks of {', '.join(map(str, rows))} rows, weight {weight}: {yours[weight]:.4f}, "
                f"and one process has {ours[weight]:.4f}"
            )


@exercise(
    "11.3",
    "`num_processes` counts those of all machines.",
    "Machines count from 0.",
)
def second_machine(told):
    if not isinstance(told, dict) or set(told) != {"num_machines", "num_processes", "machine_rank"}:
        raise NotYet("a dict with num_machines, num_processes and machine_rank is asked for")
    for name, right in (("num_machines", 2), ("num_processes", 8), ("machine_rank", 1)):
        if told[name] != right:
            raise NotYet(f"{name} is not {told[name]}" if told[name] is not ... else f"{name} is left open")
