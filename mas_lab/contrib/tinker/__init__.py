"""Weights behind a Tinker-compatible server: an adapter and its optimizer for each agent; the four cells run here.

Leaves out: the server, which is SkyRL's, TuFT's or the hosted one.
"""
