"""Kernels: pure array to array; no oracle, no input or output, no randomness of their own."""
