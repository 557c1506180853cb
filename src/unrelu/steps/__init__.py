"""Steps: spend queries or samples, and compose kernels."""
