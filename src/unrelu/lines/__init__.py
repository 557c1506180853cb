"""What a line shows: pieces, kinks, gradients, hyperplanes that recur."""
