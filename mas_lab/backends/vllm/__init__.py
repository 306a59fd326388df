"""Torch trains, vLLM samples: its engines, in this process or behind a server. Leaves out: training (torch)."""
