"""Exercises of notebook 11: a model that fits every GPU, a mean over unequal ranks, settings of a second machine."""

import numpy as np

from mas_lab.course.compare import need, result_of, same
from mas_lab.course.exercises import NotebookData, StudentCode, exercise


@exercise("11.1")
def fits_everywhere(wish: StudentCode, devices: NotebookData):
    from mas_lab.backends.placement import Placement

    need(not wish.frozen, "a frozen solver fits, but learns nothing")
    plan = Placement({"solver": wish}, devices, every=True)
    need(getattr(wish.model, "hidden_size", 0) >= 4096, "this is not the model of 8.2 billion weights")
    return f"{plan.devices_table['left'].min():.0f} GiB are left on each"


@exercise("11.2")
def mean_over_ranks(answer):
    rng = np.random.default_rng(0)
    for ranks in (2, 3, 5):
        rows = rng.integers(1, 9, size=ranks)
        gradients = [rng.normal(size=(int(count), 4)) for count in rows]
        yours = result_of(answer, np.array([part.mean(axis=0) for part in gradients]), rows)
        same(yours, np.concatenate(gradients).mean(axis=0), "gradient", f"ranks of {rows} rows, weight {{}}".format)


@exercise("11.3")
def second_machine(settings):
    for name, right in (("num_machines", 2), ("num_processes", 8), ("machine_rank", 1)):
        need(settings[name] == right, f"{name} is not {settings[name]}")
