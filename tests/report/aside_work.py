"""Work for processes aside; loads nothing, so that each starts at once."""

import os


def work(value):
    if value == "endless":
        yield value
        while True:
            pass
    if value == "broken":
        raise ValueError(value)
    yield os.getpid()
