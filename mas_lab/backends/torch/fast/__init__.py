"""Fast sampler and forward pass: trees of prompts and completions, mixed adapters, fused norms."""
