"""Unsloth's weights, kernels and adapters, as a kind of torch model. Leaves out: the policies over it (torch)."""
