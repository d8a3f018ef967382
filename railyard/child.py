"""Child processes: how every child Python is started, and those that accompany a run (samplers, probes, captures).

A child Python takes the project's packages from where this process has them and nothing from the working directory,
which may be a folder that anybody can write to: it starts in the root directory.

A ``Child`` runs one module, reads its settings as one line of JSON on standard input and prints ``ready`` once it
works. It is stopped by a line on its standard input or killed by its process id, and may print a result, one line of
JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, TypeVar

from railyard.checkout import ROOT
from railyard.errors import ConfigError, MachineError, from_os_error
from railyard.ownership import naming
from railyard.tools import safe_path

MARK_VARIABLE = "RAILYARD_MARK"
"""Environment variable by which all processes that a run started are known, and those that they started."""
_PARENT_VARIABLE = "RAILYARD_PARENT"
_START_S = 30.0
_CHUNK_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1


def _given_by_parent() -> tuple[int, str] | None:
    """The process id and the mark that a process of Railyard gives to one that it starts; None without them.

    ``ConfigError`` for an id that is none, as a person may have set by hand.
    """
    parent, mark = os.environ.pop(_PARENT_VARIABLE, None), os.environ.get(MARK_VARIABLE)
    if parent is None:
        return None
    if mark is None or not re.fullmatch("[0-9]{1,10}", parent):
        raise ConfigError("is set by Railyard, for the processes that it starts; unset it", key=_PARENT_VARIABLE)
    return int(parent), mark


_PARENT, MARK = _given_by_parent() or (os.getppid(), os.urandom(16).hex())
"""Id of the process that started this one, given by it: what getppid() says may be a later parent already. Then the
value of ``MARK_VARIABLE`` for all children of this process: its own, or in a child that of its parent."""
_C = TypeVar("_C", bound="Child")
_told = bytearray()
"""What a child has read of its standard input beyond the lines that it took."""


def python_command(module: str, *arguments: str) -> list[str]:
    """The command line of a child Python that runs ``module``; it starts in ``/`` with ``child_environment``."""
    safe = ["-P"] if sys.version_info >= (3, 11) else []  # Python 3.10 puts the working directory first, hence /
    return [sys.executable, *safe, "-m", module, *arguments]


def marked_environment(**more: str) -> dict[str, str]:
    """Environment variables of this process, and ``more``, for a program: it ends with the run, also if that is killed.

    No program is searched in a folder relative to a working directory.
    """
    return {**os.environ, "PATH": safe_path(), MARK_VARIABLE: MARK, **more}


def child_environment(**more: str) -> dict[str, str]:
    """Environment variables of this process, and ``more``, for a child Python that imports the project's packages.

    No module is searched in a folder relative to a working directory.
    """
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    safe = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(os.path.isabs, given)]),
        "PYTHONSAFEPATH": "1",
        _PARENT_VARIABLE: str(os.getpid()),
    }
    return marked_environment(**(safe | more))


def start_python(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Start a child Python that runs ``module``; ``arguments`` must not name files relative to a working directory.

    It has a session of its own, so Ctrl-C in the terminal does not reach it, and SIGINT is blocked in it from its start
    on. ``environment`` is added to ``child_environment``; ``options`` are those of ``subprocess.Popen``.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        return subprocess.Popen(
            python_command(module, *arguments),
            cwd="/",
            env=child_environment(**(environment or {})),
            start_new_session=True,
            **options,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Child:
    """The child process that runs ``module``; ``what`` names it in errors. Its end is close or the end of a ``with``.

    The descriptors ``fds`` (namespaces, sockets) stay open in the child under the same numbers. The child has a session
    of its own, so Ctrl-C in the terminal does not reach it. After it was asked to stop, it has ``patience_s`` seconds
    to end before it is killed.
    """

    def __init__(
        self, module: str, settings: Mapping[str, Any], fds: Collection[int], what: str, *, patience_s: float = 0.0
    ) -> None:
        self._module, self._settings, self._fds = module, settings, tuple(fds)
        self._what = what
        self._patience_s = patience_s
        self._process: subprocess.Popen[bytes] | None = None
        self._printed = b""

    def start(self: _C) -> _C:
        """Start the child; returns once it is ready. ``MachineError`` if it is not ready within 30 s."""
        self.begin()
        return self.ready()

    def begin(self) -> None:
        """Start the child; ``ready`` must follow. ``MachineError`` if it does not take its settings within 30 s."""
        self._printed = b""
        process = self._process = self._start()
        try:
            self.tell(json.dumps(self._settings))  # if the child has ended already, ``ready`` reports that
        except BaseException:
            self._process = None
            end_child(process)
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        return start_python(self._module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=self._fds, bufsize=0)

    def ready(self: _C) -> _C:
        """Wait until the child is ready. ``MachineError`` if it is not within 30 s; it is ended then."""
        process = self._running()
        try:
            end = time.monotonic() + _START_S
            if self.line(_START_S) != "ready\n":
                late = time.monotonic() >= end
                raise MachineError(
                    f"{self._what} was not ready within {_START_S:g} s; the machine is too slow or too busy"
                    if late
                    else f"{self._what} did not start; its message is above"
                )
        except BaseException:
            self._process = None
            end_child(process)
            raise
        return self

    @property
    def pid(self) -> int:
        """Process id of the child; ``MachineError`` if it was not started or is closed."""
        return self._running().pid

    @property
    def has_ended(self) -> bool:
        """Whether the child ended by itself or was killed; False before it is started and after it is closed."""
        return self._process is not None and self._process.poll() is not None

    def tell(self, line: str) -> None:
        """Write a line to the child's standard input; does nothing if the child has ended.

        ``MachineError`` if the child does not read it within 30 s.
        """
        with suppress(BrokenPipeError):
            if not _write(self._running(), line, _START_S):
                raise MachineError(f"{self._what} has not read what it was told within {_START_S:g} s")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise MachineError(f"{self._what} was not started")
        return self._process

    def answer(self, longest_s: float, *, stop: bool = True) -> dict[str, Any]:
        """The result that the child prints within ``longest_s`` seconds, after it is asked to stop if ``stop``.

        Raises ``MachineError`` if there is none. The child has ended when this returns.
        """
        process = self._running()
        try:
            if stop:
                _request_stop(process)
            result: dict[str, Any] = json.loads(self.line(longest_s))
        except json.JSONDecodeError:
            raise MachineError(f"{self._what} ended without a result; its message is above") from None
        finally:
            self.close()
        return result

    def line(self, longest_s: float) -> str:
        """The next line that the child prints within ``longest_s`` seconds; empty if there is none or it has ended."""
        stdout = self._running().stdout
        assert stdout
        waiting = select.poll()  # select() has no room for descriptors above 1023, which the parent may have
        waiting.register(stdout, select.POLLIN)
        end = time.monotonic() + longest_s
        while b"\n" not in self._printed:  # several lines may have come at once
            if not waiting.poll(max(0.0, end - time.monotonic()) * 1e3):
                return ""
            data = os.read(stdout.fileno(), _CHUNK_BYTES)
            if not data:
                return ""
            self._printed += data
        line, _, self._printed = self._printed.partition(b"\n")
        return line.decode() + "\n"

    def close(self) -> None:
        """Ask the child to stop and end it; does nothing if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            _request_stop(process)
            end_child(process, self._patience_s)

    def __enter__(self: _C) -> _C:
        return self if self._process else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def _write(process: subprocess.Popen[bytes], line: str, longest_s: float) -> bool:
    """Write a line to a child's standard input; whether it took all of it within ``longest_s``.

    A pipe holds 64 kB, and a child that was stopped reads none of them.
    """
    assert process.stdin
    fd, data, end = process.stdin.fileno(), line.encode() + b"\n", time.monotonic() + longest_s
    room = select.poll()
    room.register(fd, select.POLLOUT)
    os.set_blocking(fd, False)
    while data and room.poll(max(0.0, end - time.monotonic()) * 1e3):
        with suppress(BlockingIOError):
            data = data[os.write(fd, data) :]
    return not data


def _request_stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a child to stop by a line on its standard input.

    Closing the pipe would not be enough, since other processes may hold it open.
    """
    assert process.stdin
    if not process.stdin.closed:
        with suppress(BrokenPipeError):
            _write(process, "stop", 0.0)
        process.stdin.close()


def end_child(process: subprocess.Popen[Any], patience_s: float = 0.0) -> None:
    """Wait up to ``patience_s`` seconds for a process to end, then kill it, and close its pipes."""
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()


def die_with_parent(parent: int = _PARENT, number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when its ``parent`` ends (to be exact, the thread that started it)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def read_settings() -> dict[str, Any]:
    """The settings of this process, which is a child, as its parent gave them.

    From now on it prints no traceback of an error that the end of its parent causes, such as a broken pipe.
    """
    sys.excepthook = _print_unless_abandoned
    line = read_line()
    if not line:
        os._exit(1)  # the parent has ended, and nobody is told
    settings: dict[str, Any] = json.loads(line)
    return settings


def read_line() -> str:
    """In a child: the next line that its parent tells it, with its end; empty if the parent has ended.

    Read without ``sys.stdin``, whose buffer would hide a further line from ``stop_requested``.
    """
    while (end := _told.find(b"\n") + 1) == 0:
        data = os.read(0, _CHUNK_BYTES)
        if not data:
            return ""
        _told.extend(data)
    line = _told[:end].decode()
    del _told[:end]
    return line


def waiting_for(longest_s: float, *others: Any) -> list[Any]:
    """In a child: which of ``others`` can be read, within ``longest_s`` seconds, and 0 if the parent asked to stop."""
    readable = select.select([0, *others], [], [], 0.0 if _told else longest_s)[0]
    return [0, *readable] if _told and 0 not in readable else readable


def _print_unless_abandoned(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if os.getppid() == _PARENT:
        sys.__excepthook__(kind, error, trace)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """In a child that writes ``path``: end it with one sentence where that fails, as on a full disk."""
    try:
        with naming(path):
            yield
    except OSError as error:
        fault = from_os_error(error)
        print(f"railyard: {fault}", file=sys.stderr)
        sys.exit(fault.exit_status)


def stop_requested(longest_s: float) -> bool:
    """In a child: wait up to ``longest_s`` seconds; whether the parent has asked this process to stop, or has ended."""
    return bool(waiting_for(longest_s)) or os.getppid() != _PARENT
