"""How much is held in memory at a time."""

from __future__ import annotations

__all__ = ["BLOCK"]

BLOCK = 2**22
"""Numbers of one array, 32 MiB in float64: beyond the caches of any machine, far below its
memory."""
