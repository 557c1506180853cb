"""Algorithms: one paper, one module; each reads like its algorithm box."""
