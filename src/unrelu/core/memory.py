"""How much is held in memory at a time."""

from __future__ import annotations

__all__ = ["BLOCK", "BLOCK_ON_DEVICE"]

BLOCK = 2**22
"""Numbers of one array, 32 MiB in float64: beyond the caches of any machine, far below its
memory."""

BLOCK_ON_DEVICE = 2**28
"""The same for arrays on an accelerator, 2 GiB in float64: starting a product there takes as long
as a product of a small piece."""
