"""The first hour: its commands run as they stand on the page, in a terminal of 80 columns."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "first_hour.md"
COLUMNS = 80
ENDED = re.compile(r"<<(\d+):(\d+)>>")


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found
    return found


def in_a_terminal(script: str, folder: Path) -> str:
    """Run a script with a terminal of 80 columns; returns what it shows, without colours."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    tool = folder / "unrelu"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m unrelu "$@"\n')
    tool.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "LINES"}} | {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "TERM": "xterm-256color",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }  # fmt: skip
    shown = b""
    with subprocess.Popen(
        ["bash", "-c", script], stdin=slave, stdout=slave, stderr=slave, cwd=folder,
        env=environment, start_new_session=True,
    ) as shell:  # fmt: skip
        os.close(slave)
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the last program has closed the terminal
                break
            if not part:
                break
            shown += part
        shell.wait()
    os.close(master)
    return shown.decode(errors="replace")


def as_seen(text: str) -> list[str]:
    """Return the lines that stay on the screen: no colours, nothing that was drawn over."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return [line.split("\r")[-1] for line in text.replace("\r\n", "\n").split("\n")]


@pytest.mark.slow  # a dozen programs, one after the other
def test_the_first_hour_runs_as_it_stands(tmp_path):
    commands = [
        line[2:] for block in blocks("console") for line in block.splitlines() if line[:2] == "$ "
    ]
    assert len(commands) >= 8
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    (description,) = blocks("toml")
    (tmp_path / "unrelu.toml").write_text(description.replace("8123", port))
    script = "\n".join(
        f"{command.replace('8123', port)}\necho '<<{i}:'$?'>>'"
        for i, command in enumerate(commands)
    )
    text = in_a_terminal(script, tmp_path)
    ended = {int(i): int(code) for i, code in ENDED.findall(text)}
    assert ended == dict.fromkeys(range(len(commands)), 0), text
    lines = as_seen(text)
    assert max(map(len, lines)) <= COLUMNS, max(lines, key=len)
    whole = " ".join(" ".join(lines).split())
    assert "Traceback" not in whole
    for words in ("RECOVERED", "at 0.001 a query", "risk: high", "not today", "answers.db: "):
        assert words in whole, text
    assert "This model can be cloned" in (tmp_path / "report.html").read_text()
