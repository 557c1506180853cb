"""Jayaram, Woodruff & Zhang: the span of the first layer, and obfuscation."""
