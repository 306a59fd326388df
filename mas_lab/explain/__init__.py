"""Explain what a baseline does to each agent: moments, shares of a gradient, spikes.

Leaves out: pictures (`widgets`) and runs side by side (`study`).
"""
