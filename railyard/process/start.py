"""How every program and every child Python is started and ended, and the ends of its life that the kernel sees to.

A child Python takes the project's packages from where this process has them and nothing from the working directory,
which may be a folder that anybody can write to: it starts in the root directory.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from railyard.checkout import ROOT
from railyard.errors import ConfigError
from railyard.ownership import invoker
from railyard.tools import safe_path

MARK_VARIABLE = "RAILYARD_MARK"
"""Environment variable by which all processes that a run started are known, and those that they started."""
_PARENT_VARIABLE = "RAILYARD_PARENT"
ENTRY = "railyard.process"
"""What ``python -m`` starts in every child (``railyard/process/__main__.py``): it runs ``main`` of a module."""
_PR_SET_PDEATHSIG = 1
_STANDARD_DISTUTILS = {"SETUPTOOLS_USE_DISTUTILS": "stdlib"} if sys.version_info < (3, 12) else {}
"""For Mininet, which imports distutils: that of setuptools, which would come instead, takes a tenth of a second."""


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


PARENT, MARK = _given_by_parent() or (os.getppid(), os.urandom(16).hex())
"""Id of the process that started this one, given by it: what getppid() says may be a later parent already. Then the
value of ``MARK_VARIABLE`` for all children of this process: its own, or in a child that of its parent."""


def python_command(module: str, *arguments: str) -> list[str]:
    """The command line of a child Python that runs ``main`` of ``module``, in ``/`` and with ``child_environment``."""
    safe = ["-P"] if sys.version_info >= (3, 11) else []  # Python 3.10 puts the working directory first, hence /
    return [sys.executable, *safe, "-m", ENTRY, module, *arguments]


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
        **_STANDARD_DISTUTILS,
        _PARENT_VARIABLE: str(os.getpid()),
    }
    return marked_environment(**(safe | more))


def as_caller(**more: str) -> dict[str, Any]:
    """Options of ``start_program`` for the user who called sudo (without sudo: this one), with ``more`` variables."""
    caller = invoker()
    if caller is None or caller[0] == 0:
        return {"env": marked_environment(**more)}
    user = pwd.getpwuid(caller[0])
    names = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    return {
        "env": marked_environment(**names, **more),
        "user": user.pw_uid,
        "group": user.pw_gid,
        "extra_groups": groups,
    }


def become_caller() -> None:
    """Go on as the user who called sudo, if one did: not as root, and ended with the parent as before."""
    options, parent = as_caller(), os.getppid()
    if "user" in options:
        os.setgroups(options["extra_groups"])
        os.setgid(options["group"])
        os.setuid(options["user"])
        die_with_parent(parent)  # the kernel forgets it with the change of user
        os.environ.update((name, options["env"][name]) for name in ("HOME", "USER", "LOGNAME"))


def _usual() -> dict[str, Any]:
    """Options of ``subprocess`` for every program."""
    return {"cwd": "/", "env": marked_environment(), "start_new_session": True}


def start_program(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a program in ``/``, in a session of its own, with ``marked_environment`` and an empty standard input.

    ``options`` are those of ``subprocess.Popen``, and go before these.
    """
    return subprocess.Popen(command, **{**_usual(), "stdin": subprocess.DEVNULL, **options})


class ProgramResult(NamedTuple):
    """The exit status of a program, and what it printed; status -1 with the reason in ``err`` if it gave none."""

    status: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        """The last line of what it printed about errors, or else its status."""
        lines = self.err.strip().splitlines()
        return lines[-1].strip() if lines else f"it ended with status {self.status}"


def run_program(command: Sequence[str], timeout_s: float, *, given: str = "", **options: Any) -> ProgramResult:
    """Run a program to its end with ``given`` on its standard input; after ``timeout_s`` seconds it is killed."""
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            timeout=timeout_s,
            encoding="utf-8",
            errors="replace",
            **(_usual() | options),
        )
    except OSError as error:
        return ProgramResult(-1, "", str(error))
    except subprocess.TimeoutExpired:
        return ProgramResult(-1, "", f"no answer within {timeout_s:g} s")
    return ProgramResult(done.returncode, done.stdout, done.stderr)


def start_python(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Start a child Python that runs ``main`` of ``module``.

    No ``arguments`` may be a file relative to a working directory. The child has a session of its own, so Ctrl-C in the
    terminal does not reach it, and SIGINT is blocked in it from its start on. ``environment`` is added to
    ``child_environment``; ``options`` are those of ``start_program``.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        environ = child_environment(**(environment or {}))
        return start_program(python_command(module, *arguments), **{"env": environ, **options})
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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


def die_with_parent(parent: int = PARENT, number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when its ``parent`` ends (to be exact, the thread that started it)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def has_ended(pid: int, patience_s: float = 0.0) -> bool:
    """Whether a process has ended, or does within ``patience_s`` seconds; also one that another process started."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        waiting = select.poll()
        waiting.register(pidfd, select.POLLIN)
        return bool(waiting.poll(patience_s * 1e3))
    finally:
        os.close(pidfd)


def start_fork(act: Callable[[], int]) -> int:
    """Run ``act`` in a fork of this process, which ends with the status that it returns; the fork's process id.

    It ends with this process. ``poll`` tells it of the ends of processes that this one started, for which only this one
    can wait.
    """
    parent, child = os.getpid(), os.fork()
    if child:
        return child
    status = 1
    try:
        die_with_parent(parent, signal.SIGTERM)
        own = subprocess.Popen.poll

        def poll(process: subprocess.Popen[Any]) -> int | None:
            return None if process.returncode is None and not has_ended(process.pid) else own(process)

        vars(subprocess)["Popen"].poll = poll
        status = act()
    except SystemExit as end:  # such as of --help
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(status)


def become(command: Sequence[str]) -> NoReturn:
    """Go on as another program, found in absolute folders only; ``OSError`` if that cannot be."""
    os.environ["PATH"] = safe_path()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and a program would go on to
        signal.signal(number, signal.SIG_DFL)
    os.execvp(command[0], [*command])


def go_on_in_child() -> int:
    """Return in a fork of this process, with the id of this one, which waits for it and ends with its status.

    The end of this one, as by a signal of its parent's, is told to the fork by SIGTERM.
    """
    here, child = os.getpid(), os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        _, status = os.waitpid(child, 0)
        os._exit(abs(os.waitstatus_to_exitcode(status)))
    die_with_parent(here, signal.SIGTERM)
    return here
