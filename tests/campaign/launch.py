"""Starts the runs that faults are made in, also with short resources and in unusual ways."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from railyard.checkout import ROOT
from railyard.process.start import python_command
from tests.campaign.acts import NotPossible
from tests.campaign.fault import Fault
from tests.campaign.machine_state import DISK
from tests.campaign.processes import MARK
from topos.kernel.run_registry import REGISTRY

COMMAND = "commands.main"
CALLER = 12345
"""User and group by which the run of fault ``caller of sudo`` seems to be called."""
_PACKAGES = sorted({path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"})
_HOSTILE = (*_PACKAGES, "json", "typing", "numpy", "pydantic", "mininet", "sitecustomize", "usercustomize")
_PRIVATE_MOUNTS = ("unshare", "--mount", "--propagation", "private")
_CLOCK_AHEAD = ("unshare", "--time", "--monotonic", "86400")
_DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "env", "--default-signal=INT,HUP,TERM")


@dataclass
class Launch:
    """The command of a run whose files are in ``folder``, which is made, and how it is to be started.

    - ``out``: its results folder; ``registry``: where it registers itself (None: where all runs do);
    - ``trap``: a file that exists when a module of the working directory was executed;
    - ``root``: the checkout that its processes must be of; ``owner``: the user whom its files must belong to.
    """

    folder: Path
    mark: str
    command: list[str] = field(default_factory=list)
    prefix: list[str] = field(default_factory=list)
    own_registry: bool = False
    trap: Path | None = None
    owner: int | None = None

    def __post_init__(self) -> None:
        (self.folder / "tmp").mkdir(parents=True)
        self.out, self.cwd, self.root = self.folder / "results", self.folder, ROOT
        own = {MARK: self.mark, "TMPDIR": str(self.folder / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
        self.environment = {**os.environ, **own}
        for name in ("SUDO_UID", "SUDO_GID", "SUDO_USER"):
            self.environment.pop(name, None)

    def railyard(self, *arguments: str) -> list[str]:
        """The command line of ``railyard`` with ``arguments``, in the checkout of the run."""
        self.environment["PYTHONPATH"] = str(self.root)
        return python_command(COMMAND, *arguments)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the run in a session of its own; it is killed when the calling thread ends."""
        with open(self.folder / "output", "wb") as output, open(self.folder / "errors", "wb") as errors:
            return subprocess.Popen(
                [*_DIE_WITH_PARENT, *self.prefix, *self.command],
                stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                cwd=self.cwd, env=self.environment, start_new_session=True,
            )  # fmt: skip

    def registry_of(self, pid: int) -> Path:
        """The registry in which the run ``pid`` is."""
        return Path(f"/proc/{pid}/root{REGISTRY}") if self.own_registry else REGISTRY


@contextmanager
def prepared(fault: Fault, folder: Path, mark: str) -> Iterator[Launch]:
    """The launch of the run for a fault, whose files are in ``folder``; what it needs is removed at the end.

    ``NotPossible`` where the machine has not what a fault needs.
    """
    launch = Launch(folder, mark)
    prepare = _WAYS.get(fault.place.what)
    undo = prepare(launch, fault) if prepare else None
    launch.command = launch.railyard("run", *fault.victim.arguments, "--no-figures", "--out", str(launch.out))
    try:
        yield launch
    finally:
        if undo:
            subprocess.run(undo, check=False, stderr=subprocess.DEVNULL)


# ---- ways to start: each changes the launch, and may return the command that removes what it has made --------------


def _results_disk(launch: Launch, fault: Fault) -> list[str]:
    disk = launch.folder / DISK
    disk.mkdir()
    _try("mount", "-t", "tmpfs", "-o", f"size={fault.amount:.0f}", "tmpfs", str(disk))
    launch.out = disk / "results"
    return ["umount", "--lazy", str(disk)]


def _run_folder_disk(launch: Launch, fault: Fault) -> None:
    """The registry of the run is a small disk, which only the run and its processes see."""
    _try(*_PRIVATE_MOUNTS, "true")
    REGISTRY.mkdir(exist_ok=True)
    mount = f'mount -t tmpfs -o size={fault.amount:.0f} tmpfs {REGISTRY} && exec "$@"'
    launch.prefix = [*_PRIVATE_MOUNTS, "sh", "-c", mount, "sh"]
    launch.own_registry = True


def _open_files(launch: Launch, fault: Fault) -> None:
    launch.prefix = ["prlimit", f"--nofile={fault.amount:.0f}:{fault.amount:.0f}"]


def _file_size(launch: Launch, fault: Fault) -> None:
    launch.prefix = ["prlimit", f"--fsize={fault.amount:.0f}:{fault.amount:.0f}"]


def _memory(launch: Launch, fault: Fault) -> list[str]:
    """All processes of the run share a control group with little memory."""
    group = _memory_group() / f"railyard-campaign-{os.getpid()}-{fault.number}"
    try:
        group.mkdir()
        limit = next(name for name in ("memory.max", "memory.limit_in_bytes") if (group / name).exists())
        (group / limit).write_text(f"{fault.amount:.0f}")
    except (OSError, StopIteration):
        with suppress(OSError):
            group.rmdir()
        raise NotPossible("no control group can limit memory here") from None
    launch.prefix = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    return ["rmdir", str(group)]


def _memory_group() -> Path:
    """The control group of this process in the hierarchy that limits memory."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kinds, place = line.split(":", 2)
        if "memory" in kinds.split(","):
            return Path("/sys/fs/cgroup/memory") / place.lstrip("/")
    return Path("/sys/fs/cgroup")


def _foreign_folder(launch: Launch, fault: Fault) -> None:
    """The working directory has modules with the names of this project's and of others, which leave a file."""
    if sys.version_info < (3, 11):
        raise NotPossible("Python before 3.11 searches the working directory for the first module")
    launch.cwd, launch.trap = launch.folder / "foreign", launch.folder / "trapped"
    text = f"open({str(launch.trap)!r}, 'a').write(__file__ + chr(10))\nraise SystemExit('a module of the caller')\n"
    for name in _HOSTILE:
        (launch.cwd / name).mkdir(parents=True)
        for module in ("__init__", "main", "sampler", "launcher_server", "process"):
            (launch.cwd / name / f"{module}.py").write_text(text)


def _second_checkout(launch: Launch, fault: Fault) -> None:
    """The run is that of a copy of this project, started while standing in the original."""
    launch.root, launch.cwd = launch.folder / "checkout", ROOT
    for name in _PACKAGES:
        shutil.copytree(ROOT / name, launch.root / name, ignore=shutil.ignore_patterns("__pycache__"))


def _caller_of_sudo(launch: Launch, fault: Fault) -> None:
    launch.owner = CALLER
    launch.environment |= {"SUDO_UID": str(CALLER), "SUDO_GID": str(CALLER), "SUDO_USER": "nobody"}
    launch.folder.chmod(0o755)


def _clock_offset(launch: Launch, fault: Fault) -> None:
    """The clock of events is a day ahead of that of the machine."""
    _try(*_CLOCK_AHEAD, "true")
    launch.prefix = list(_CLOCK_AHEAD)


def _try(*command: str) -> None:
    """Run a tool that prepares a run; ``NotPossible`` if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NotPossible(f"the tool {command[0]} is missing") from None
    if done.returncode != 0:
        raise NotPossible(f"{command[0]}: {done.stderr.strip() or done.returncode}")


_WAYS: dict[str, Callable[[Launch, Fault], list[str] | None]] = {
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
