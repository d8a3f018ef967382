"""Mininet's command line on a fabric, as a person types it: what the document shows, bad input, and Ctrl-C."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from checkout import ROOT
from script_runs import PATIENCE_S, descendants, hear_signals, runs_of

pytestmark = [pytest.mark.root, pytest.mark.beside]
PROMPT = "mininet> "
PAGE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8").split("## The Mininet CLI\n")[1]


class CommandLine:
    """A command line that is typed into, one command after the answer to the one before it."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=hear_signals,
        )
        self.begun = self.answer()

    def answer(self) -> str:
        """What it says up to the next prompt."""
        out, said, end = self.process.stdout, "", time.monotonic() + PATIENCE_S
        assert out is not None
        while not said.endswith(PROMPT):
            assert time.monotonic() < end, f"no prompt: {said}"
            if select.select([out], [], [], 0.2)[0]:
                piece = os.read(out.fileno(), 1 << 16).decode(errors="replace")
                assert piece, f"the command line has ended: {said}"
                said += piece
        return said.removesuffix(PROMPT)

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def do(self, line: str) -> str:
        """What it answers to a command."""
        self.type(line)
        return self.answer()


@contextmanager
def command_line(*command: str) -> Iterator[CommandLine]:
    """A command line, which must end well, with nothing left."""
    opened = CommandLine(*command)
    try:
        yield opened
        out, _ = opened.process.communicate(b"exit\n", timeout=PATIENCE_S)
        assert opened.process.returncode == 0, out
        assert not runs_of(opened.process.pid)
    finally:
        if opened.process.poll() is None:
            os.killpg(opened.process.pid, signal.SIGKILL)
            opened.process.communicate()


@pytest.fixture(scope="module")
def documented() -> Iterator[CommandLine]:
    """The command line that the document opens, by the very line."""
    opening, *_ = re.findall(r"^sudo railyard (.*)$", PAGE, re.MULTILINE)
    with command_line(sys.executable, "-m", "commands.main", *opening.split()) as opened:
        yield opened


def test_the_first_ping_answers_and_names_follow_the_circuits(documented: CommandLine) -> None:
    for pair in (("g0", "g2"), ("g1", "g3"), ("g4", "g6"), ("g5", "g7")):
        for host, peer in (pair, pair[::-1]):
            assert " 1 received" in documented.do(f"{host} ping -c1 -W2 {peer}"), (host, peer)
            assert " 1 received" in documented.do(f"{host} sh -c 'ping -c1 -W2 {peer}'"), (host, peer)
    documented.do("rewire rail0 1-3")
    assert "PING 10.1.0.3" in (said := documented.do("g0 ping -c1 -W2 g2")) and " 1 received" in said
    assert "PING g0 (10.1.0.1)" in (said := documented.do("g2 sh -c 'ping -c1 -W2 g0'")) and " 1 received" in said
    documented.do("rewire rail0 2-3 overwrite")
    for state in ("down", "up"):
        documented.do(f"link g0 rail0 {state}")
    said = documented.do("pingall 5")
    assert "g2 -> rail0: g0, not joined: g1" in said and "*** Results: 0 of 6 pings were lost" in said
    documented.do("rewire rail0 1-4 2-3 5-8 6-7 overwrite")


def test_the_document_shows_what_happens(documented: CommandLine) -> None:
    shown = PAGE.split("```\n")[3]
    greeting = shown.split(PROMPT)[0].splitlines()
    begun = documented.begun.splitlines()
    assert [line for line in greeting if not line.startswith("scale")] == [
        line for line in begun if not line.startswith("scale")
    ]
    commands = [part.split("\n", 1) for part in shown.split(PROMPT)[1:]]
    assert len(commands) >= 9
    for line, answer in commands:
        said = documented.do(line)
        wanted = re.sub(r"time \d+ms", "", answer).strip()
        assert wanted in re.sub(r"time \d+ms", "", said), f"{line}: {said}"
        if line == "iperf g0 g2":
            assert re.search(r"\*\*\* Results: \['[1-9][0-9.]* Mbits/sec', '[1-9][0-9.]* Mbits/sec'\]", said)


def test_the_commands_named_beside_it_work(documented: CommandLine) -> None:
    assert "g0-r0<->rail0-eth1 (OK OK)" in documented.do("links")
    assert "g0 g1" in documented.do("nodes")
    assert "Cannot connect to display" in documented.do("xterm g0") or "DISPLAY" in os.environ


def test_datagrams_and_ctrl_c(documented: CommandLine) -> None:
    documented.do("rewire rail0 1-3")
    said = documented.do("iperfudp 5M g0 g2")
    assert re.search(r"\*\*\* Results: \['5M', '[1-9]", said), said
    documented.type("iperf g0 g2")
    out, end = documented.process.stdout, time.monotonic() + PATIENCE_S
    assert out is not None
    while not any(command(pid) == "iperf3" for pid in descendants(documented.process.pid)):
        assert time.monotonic() < end
        time.sleep(0.05)
    os.kill(documented.process.pid, signal.SIGINT)
    assert "Interrupt" in documented.answer()
    assert not [pid for pid in descendants(documented.process.pid) if command(pid) == "iperf3"]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def test_bad_input_leaves_the_command_line_up(documented: CommandLine) -> None:
    for line, sentence in (
        ("source /nonexistent", "*** /nonexistent cannot be read (No such file or directory)"),
        ("iperf g0", "invalid number of args"),
        ("iperf g0 g0", "*** iperf needs two hosts, not g0 twice"),
        ("iperf g0 g1", "*** g0 and g1 have no network in common"),
        ("iperf g0 rail0", "*** there is no namespace of rail0; hosts are g0"),
        ("iperf g0 nosuch", "node 'nosuch' not in network"),
        ("iperfudp fast g0 g2", "*** bw: must be bits per second above 0, as in 10M, not fast"),
        ("link g0 nosuch down", "dst not in network: nosuch"),
        ("pingall soon", "*** timeout: must be from 0.001 to 3600 s, not soon"),
        ("x nosuch", "*** there is no node nosuch"),
        ("xterm nosuch", "node 'nosuch' not in network"),
        ("rewire rail0 1-99", "port 99 is not on rail0"),
        ("switch rail0 stop", "*** the switches of a fabric start and stop together"),
        ("dpctl", "usage: dpctl"),
        ("dpctl nosuch", "unknown command 'nosuch'"),
        ("noecho", "*** Unknown command"),
        ("time nosuch", "*** Unknown command: nosuch"),
        ("py 1/0", "division by zero"),
        ("px nosuch", "name 'nosuch' is not defined"),
        ("nosuch", "*** Unknown command: nosuch"),
    ):
        said = documented.do(line)
        assert sentence in said and "Traceback" not in said, f"{line}: {said}"
    assert "g0 g1" in documented.do("nodes")
