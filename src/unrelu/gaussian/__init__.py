"""Awasthi, Tang & Vijayaraghavan: learning from Gaussian samples."""
