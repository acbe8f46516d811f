"""Three ways to compute the same: `reference` defines it, `blocked` and `fused` are fast."""
