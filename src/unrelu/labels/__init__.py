"""From labels to the network."""
