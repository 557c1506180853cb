"""Goel & Panigrahy: the lowest layer under high thresholds, and halfspaces."""
