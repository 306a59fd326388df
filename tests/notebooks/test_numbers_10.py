"""What notebook 10 says of recorded runs stands in the records."""

import pandas as pd

from mas_lab.paths import data_dir, notebooks_dir

TEXT = (notebooks_dir() / "10_one_gpu_unsloth.ipynb").read_text(encoding="utf-8")


def test_what_four_bits_cost():
    success = pd.read_csv(data_dir() / "results" / "four_bits.csv").groupby("base")["success"]
    (exact, rounded), (low, high) = success.mean()[["float32", "4 bits"]], (success.min(), success.max())
    told = "{:.2f} to {:.2f} in float32 and {:.2f} to {:.2f} in 4 bits"
    assert told.format(low["float32"], high["float32"], low["4 bits"], high["4 bits"]) in TEXT
    assert abs((1 - rounded / exact) - 0.4) < 0.05 and "about two fifths of the success is gone" in TEXT
