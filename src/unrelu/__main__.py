"""``python -m unrelu`` is the ``unrelu`` command."""

from unrelu.cli.main import run

if __name__ == "__main__":
    run()
