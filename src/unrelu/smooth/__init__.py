"""Networks with one hidden layer of any activation."""
