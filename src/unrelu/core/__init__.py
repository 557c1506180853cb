"""What every method stands on: the record of a run's answers, their reading, the price."""
