import numpy as np

RIGHT = {
    "10.1": [(2**16,)],
    "10.2": [(lambda layers, rank: sum(rank * (i + o) for i, o in layers),)],
    "10.3": [(lambda trained, sampled: np.abs(np.expm1(trained - sampled)).max(),)],
}
WRONG = {
    "10.1": [(2**14,), (2**17,), (50_000,), (65536.0,)],
    "10.2": [(lambda layers, rank: sum(i * o for i, o in layers),), (lambda layers, rank: rank * sum(layers[0]),)],
    "10.3": [
        (lambda trained, sampled: np.abs(trained - sampled).max(),),
        (lambda trained, sampled: np.abs(np.exp(trained - sampled) - 1).mean(),),
        (lambda trained, sampled: (np.exp(trained - sampled) - 1).max(),),
    ],
}
