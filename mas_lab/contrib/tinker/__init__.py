"""Weights behind a Tinker-compatible server: an adapter and its optimizer for each agent; the four cells run here.

`lab.load_base(model, backend="tinker", adapters=2, url=...)` makes them; its options are those of `TinkerOptions`.
Leaves out: the server, which is SkyRL's, TuFT's or the hosted one.
"""

from mas_lab.contrib.tinker.service import TinkerOptions

__all__ = ["TinkerOptions"]
