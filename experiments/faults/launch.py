"""Starts the runs that faults are made in, also with short resources and in unusual ways."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from experiments.faults.acts import NotPossible
from experiments.faults.fault import Fault
from experiments.faults.machine_state import DISK
from experiments.faults.processes import MARK
from experiments.faults.victims import Victim
from railyard.checkout import ROOT
from railyard.child import python_command
from topos.kernel.run_registry import REGISTRY

COMMAND = "experiments.command.main"
CALLER = 12345
"""User and group by which the run of fault ``caller of sudo`` seems to be called."""
_PACKAGES = ("railyard", "topos", "controllers", "workloads", "measure", "experiments")
_HOSTILE = (*_PACKAGES, "json", "typing", "numpy", "pydantic", "mininet", "sitecustomize", "usercustomize")
_OFFSET_S = "86400"
_DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "env", "--default-signal=INT,HUP,TERM")


@dataclass
class Launch:
    """The command of a run, its ``folder``, and where it is to be started.

    - ``out``: its results folder; ``registry``: where it registers itself, once it runs with a registry of its own;
    - ``trap``: a file that exists when a module of the working directory was executed;
    - ``root``: the checkout that its processes must be of; ``owner``: the user whom its files must belong to;
    - ``clock``: whether it has this machine's clock.
    """

    folder: Path
    out: Path
    command: list[str]
    cwd: Path
    environment: dict[str, str]
    own_registry: bool = False
    trap: Path | None = None
    root: Path = ROOT
    owner: int | None = None
    clock: bool = True
    cgroup: Path | None = None
    prefix: list[str] = field(default_factory=list)

    def railyard(self, *arguments: str) -> list[str]:
        """The command line of ``railyard`` with ``arguments``, in the checkout of the run."""
        return python_command(COMMAND, *arguments)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the run in a session of its own; it is killed when the calling thread ends."""
        with open(self.folder / "output", "wb") as output, open(self.folder / "errors", "wb") as errors:
            return subprocess.Popen(
                [*_DIE_WITH_PARENT, *self.prefix, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=self.cwd,
                env=self.environment,
                start_new_session=True,
            )

    def registry_of(self, pid: int) -> Path:
        """The registry in which the run ``pid`` is."""
        return Path(f"/proc/{pid}/root{REGISTRY}") if self.own_registry else REGISTRY


@contextmanager
def prepared(fault: Fault, victim: Victim, folder: Path, mark: str) -> Iterator[Launch]:
    """The launch of the run for a fault, whose files are in ``folder``; what it needs is removed at the end.

    ``NotPossible`` where the machine has not what a fault needs.
    """
    launch = launch_in(folder, mark)
    make = _WAYS.get(fault.place.what)
    with make(launch, fault) if make is not None else _as_always(launch):
        launch.command = launch.railyard("run", *victim.arguments, "--no-figures", "--out", str(launch.out))
        launch.environment["PYTHONPATH"] = str(launch.root)
        yield launch


def launch_in(folder: Path, mark: str) -> Launch:
    """A launch without a command, whose files are in ``folder``, which is made."""
    (folder / "tmp").mkdir(parents=True)
    environment = {**os.environ, MARK: mark, "TMPDIR": str(folder / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("SUDO_UID", "SUDO_GID", "SUDO_USER"):
        environment.pop(name, None)
    environment["PYTHONPATH"] = str(ROOT)
    return Launch(folder, folder / "results", [], folder, environment)


@contextmanager
def _as_always(launch: Launch) -> Iterator[None]:
    yield


# ---- short resources ---------------------------------------------------------------------------------------------


@contextmanager
def _results_disk(launch: Launch, fault: Fault) -> Iterator[None]:
    disk = launch.folder / DISK
    disk.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={fault.amount:.0f}", "tmpfs", str(disk))
    launch.out = disk / "results"
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=False)


@contextmanager
def _run_folder_disk(launch: Launch, fault: Fault) -> Iterator[None]:
    """The registry of the run is a small disk, which only the run and its processes see."""
    private = ["unshare", "--mount", "--propagation", "private"]
    _run(*private, "true")
    REGISTRY.mkdir(exist_ok=True)
    mount = f'mount -t tmpfs -o size={fault.amount:.0f} tmpfs {REGISTRY} && exec "$@"'
    launch.prefix = [*private, "sh", "-c", mount, "sh"]
    launch.own_registry = True
    yield


@contextmanager
def _open_files(launch: Launch, fault: Fault) -> Iterator[None]:
    launch.prefix = ["prlimit", f"--nofile={fault.amount:.0f}:{fault.amount:.0f}"]
    yield


@contextmanager
def _file_size(launch: Launch, fault: Fault) -> Iterator[None]:
    launch.prefix = ["prlimit", f"--fsize={fault.amount:.0f}:{fault.amount:.0f}"]
    yield


@contextmanager
def _memory(launch: Launch, fault: Fault) -> Iterator[None]:
    """All processes of the run share a control group with little memory."""
    place = _memory_group() / f"railyard-faults-{os.getpid()}-{fault.number}"
    try:
        place.mkdir()
        limit = next(name for name in ("memory.max", "memory.limit_in_bytes") if (place / name).exists())
        (place / limit).write_text(f"{fault.amount:.0f}")
    except (OSError, StopIteration):
        with suppress(OSError):
            place.rmdir()
        raise NotPossible("no control group can limit memory here") from None
    launch.prefix = ["sh", "-c", f'echo $$ > {place}/cgroup.procs && exec "$@"', "sh"]
    launch.cgroup = place
    try:
        yield
    finally:
        with suppress(OSError):
            place.rmdir()


def _memory_group() -> Path:
    """The control group of this process in the hierarchy that limits memory."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kinds, place = line.split(":", 2)
        if "memory" in kinds.split(","):
            return Path("/sys/fs/cgroup/memory") / place.lstrip("/")
    return Path("/sys/fs/cgroup")


# ---- unusual ways to start ---------------------------------------------------------------------------------------


@contextmanager
def _foreign_folder(launch: Launch, fault: Fault) -> Iterator[None]:
    """The working directory has modules with the names of this project's and of others, which leave a file."""
    if sys.version_info < (3, 11):
        raise NotPossible("Python before 3.11 searches the working directory for the first module")
    launch.cwd, launch.trap = launch.folder / "foreign", launch.folder / "trapped"
    launch.cwd.mkdir()
    for name in _HOSTILE:
        package = launch.cwd / name
        package.mkdir()
        text = (
            f"open({str(launch.trap)!r}, 'a').write(__file__ + chr(10))\nraise SystemExit('a module of the caller')\n"
        )
        for module in ("__init__", "main", "sampler", "launcher_server", "process"):
            (package / f"{module}.py").write_text(text)
    yield


@contextmanager
def _second_checkout(launch: Launch, fault: Fault) -> Iterator[None]:
    """The run is that of a copy of this project, started while standing in the original."""
    launch.root, launch.cwd = launch.folder / "checkout", ROOT
    for name in _PACKAGES:
        shutil.copytree(ROOT / name, launch.root / name, ignore=shutil.ignore_patterns("__pycache__"))
    yield


@contextmanager
def _caller_of_sudo(launch: Launch, fault: Fault) -> Iterator[None]:
    launch.owner = CALLER
    launch.environment |= {"SUDO_UID": str(CALLER), "SUDO_GID": str(CALLER), "SUDO_USER": "nobody"}
    launch.folder.chmod(0o755)
    yield


@contextmanager
def _clock_offset(launch: Launch, fault: Fault) -> Iterator[None]:
    """The clock of events is a day ahead of that of the machine."""
    launch.prefix = ["unshare", "--time", "--monotonic", _OFFSET_S]
    _run(*launch.prefix, "true")
    launch.clock = False
    yield


def _run(*command: str) -> None:
    """Run a tool that prepares a run; ``NotPossible`` if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NotPossible(f"the tool {command[0]} is missing") from None
    if done.returncode != 0:
        raise NotPossible(f"{command[0]}: {done.stderr.strip() or done.returncode}")


_WAYS = {
    "results disk": _results_disk,
    "run folder disk": _run_folder_disk,
    "open files": _open_files,
    "file size": _file_size,
    "memory": _memory,
    "foreign folder": _foreign_folder,
    "second checkout": _second_checkout,
    "caller of sudo": _caller_of_sudo,
    "clock offset": _clock_offset,
}
