"""Engines of vLLM, in this process or behind a server; torch trains, vLLM samples. Leaves out: training (torch)."""
