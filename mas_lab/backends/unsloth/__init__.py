"""Unsloth's weights, kernels and adapters, as a kind of torch model. Leaves out: what a policy is (torch)."""
