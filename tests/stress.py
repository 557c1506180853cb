"""Run a command while busy processes share the cores: stress.py [--busy 16] COMMAND...

No test may fail because a machine is slow. The busy processes end with this one, however
it ends, and everything ends after ``--limit`` seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys

#: Computes until the time is over or its parent has gone.
SPIN = """
import os, sys, time
end, parent = time.monotonic() + float(sys.argv[1]), int(sys.argv[2])
while time.monotonic() < end and os.getppid() == parent:
    sum(range(100_000))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", type=int, default=16, help="busy processes")
    parser.add_argument("--limit", type=float, default=7200.0, help="seconds for everything")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    spin = [sys.executable, "-c", SPIN, str(options.limit), str(os.getpid())]
    busy = [subprocess.Popen(spin) for _ in range(options.busy)]
    # A group of its own: its children end with it.
    command = subprocess.Popen(options.command, start_new_session=True)
    try:
        return command.wait(options.limit)
    except subprocess.TimeoutExpired:
        print(f"not finished after {options.limit:g} s", file=sys.stderr)
        return 124
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)
        command.wait()
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
