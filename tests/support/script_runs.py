"""Scripts as children that a test can trouble: started, watched, and waited for; and commands in this process."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from checkout import ROOT

from commands.main import main
from railyard.errors import ConfigError
from railyard.timeline import Event
from topos.kernel.run_registry import REGISTRY, RegisteredRun

PATIENCE_S = 120
ONCE = ("--repeats", "1", "--attempts", "1")
"""Options of a run whose numbers a test does not look at: each point is measured once, also if it is not faithful."""
SMOKE = ("--workload", "smoke", "--rate", "1/250")
"""A small job at a given rate: to choose one, a run first looks for up to two seconds at what others leave to it."""


def hear_signals() -> None:
    """A test run in the background of a shell ignores Ctrl-C, one under nohup SIGHUP, and so would its children."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def called(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """What the ``railyard`` command says and returns, in this process: without the second that a Python needs."""
    words, out, errors = [str(word) for word in arguments], io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    before = Path.cwd()
    try:
        os.chdir(cwd)
        with redirect_stdout(out), redirect_stderr(errors):
            status = main(words)
    except SystemExit as end:  # --help
        status = int(end.code or 0)
    finally:
        os.chdir(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return subprocess.CompletedProcess(words, status, out.getvalue(), errors.getvalue())


def refuse(line: str) -> None:
    """Raise the sentence with which the command refuses a line in the working directory, where it leaves nothing."""
    before = os.listdir()
    done = called(*line.split(), cwd=Path.cwd())
    assert os.listdir() == before
    assert done.returncode == 2 and not done.stdout, done
    assert done.stderr.startswith("railyard: ") and done.stderr.endswith("\n")
    raise ConfigError(done.stderr[len("railyard: ") : -1])


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    """The script as a child in a session of its own; each point is measured once, unless the arguments say more."""
    once = () if script == "plot.py" else ONCE
    return subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / script), *once, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=hear_signals,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit status, output and errors."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, out, err


def runs_of(pid: int) -> list[RegisteredRun]:
    """The registered runs that ``pid`` owns."""
    runs = [RegisteredRun(path) for path in REGISTRY.iterdir()] if REGISTRY.is_dir() else []
    return [run for run in runs if (owner := run.owner()) is not None and owner.pid == pid]


def wait_for_agents(process: subprocess.Popen[str], rank: int = 0) -> int:
    """Process id of an agent of a run, once it runs."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        for child in descendants(process.pid):
            with suppress(OSError):  # it has ended
                if Path(f"/proc/{child}/comm").read_text().strip() == f"railyard-g{rank}":
                    return child
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("no agent came up")


def wait_for_step(process: subprocess.Popen[str], out: Path, rank: int = 0) -> None:
    """Wait until a rank of a run into ``out`` has a step behind it and in its file."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if any(_has_step(file) for file in (out / "points").rglob(f"g{rank}.jsonl")):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("no step was made")


def _has_step(file: Path) -> bool:
    """Whether a line that is complete tells of a step."""
    with suppress(FileNotFoundError):  # the run has ended
        lines = file.read_text().splitlines(keepends=True)
        return any(Event.from_line(line).kind == "step" for line in lines if line.endswith("\n"))
    return False


def kill_controller(process: subprocess.Popen[str]) -> None:
    """End the controller of a run without a warning."""
    for child in descendants(process.pid):
        with suppress(OSError):  # it has ended
            if b"controllers.main" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)


def descendants(pid: int) -> Iterator[int]:
    """All children of ``pid``, and theirs."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended, or ends just now
        return
    for child in map(int, children):
        yield child
        yield from descendants(child)


def words_of(pid: int) -> list[str]:
    """The command line of a process; the program without its folder. Empty once it has ended."""
    with suppress(OSError):
        program, *words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        return [program.rpartition("/")[2], *words]
    return []


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "summary.json").read_text())
    return found
