"""Daniely & Granot: exact extraction of networks with one and two hidden layers."""
