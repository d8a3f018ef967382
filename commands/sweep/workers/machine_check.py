"""The report of a machine before it is given a point, and the check that all can be used for one sweep."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commands.origin import sha256
from commands.sweep.execute import this_machine_facts
from commands.sweep.folder import host_name
from measure.live.calibration import load_calibration
from measure.results.manifest import git_commit
from railyard import __version__
from railyard.checkout import ROOT, SETUP
from railyard.errors import MachineError
from railyard.process.start import run_program
from railyard.tools import TOOLS, safe_path

_SETUP_S = 30.0


@dataclass(frozen=True)
class MachineReport:
    """A machine as its worker sees it.

    ``root`` is ``root``, ``sudo`` (without a password) or empty, ``facts`` may explain that its numbers differ from
    those of others, ``lacking`` are programs and packages of the distribution that a measured point needs.
    ``calibrated`` is when it was calibrated, empty if it was not. ``files`` has the SHA-256 of each file that was asked
    for, empty for one that cannot be read.
    """

    host: str
    railyard: str
    commit: str
    python: str
    root: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()
    calibrated: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


def inspected(files: Sequence[str], root: str, *, measured: bool = True) -> MachineReport:
    """The report about this machine; ``root`` says how this process runs something as root.

    What the machine lacks is looked at if something is to be ``measured`` on it.
    """
    try:
        calibration = load_calibration()
    except MachineError:  # a file of another version: the machine is as good as not calibrated
        calibration = None
    commit = git_commit(ROOT) or {}
    return MachineReport(
        host=host_name(),
        railyard=__version__,
        commit=f"{commit.get('commit', '')}{' with changes' if commit.get('changed') else ''}",
        python=platform.python_version(),
        root=root,
        facts=this_machine_facts(),
        lacking=tuple(_lacking()) if measured else (),
        calibrated=calibration.measured_at if calibration else "",
        files={file: _hash(file) for file in files},
    )


def _lacking() -> list[str]:
    """Programs that a run starts and this machine has not, and packages that ``scripts/setup.sh --check`` misses."""
    found = [name for name in TOOLS if shutil.which(name, path=safe_path()) is None]
    if SETUP.exists():
        done = run_program([str(SETUP), "--check"], _SETUP_S)
        found += re.findall(r"^setup: missing: package ([^:\s]+):", done.out + done.err, re.MULTILINE)
    return list(dict.fromkeys(found))


def _hash(file: str) -> str:
    try:
        return sha256(Path(file))
    except OSError:
        return ""


def check_machines(here: MachineReport, machines: Sequence[MachineReport], *, measured: bool) -> list[str]:
    """Raise ``MachineError`` for the first of the ``machines`` that cannot run points of a sweep that begins ``here``.

    Points that are ``measured`` need root and the programs of a run; ``here.files`` must be the same everywhere.
    Returns a sentence for each difference that is allowed and may explain others.
    """
    for machine in machines:
        fault = next(_faults(here, machine, measured), None)
        if fault is not None:
            raise MachineError(f"machine {machine.host} {fault}")
    return [note for machine in machines for note in _notes(here, machine, measured)]


def _faults(here: MachineReport, machine: MachineReport, measured: bool) -> Iterator[str]:
    if machine.railyard != here.railyard:
        yield (
            f"has Railyard {machine.railyard} and this one {here.railyard}; install the same version on both, as a "
            f"point must mean the same everywhere"
        )
    if _minor(machine.python) != _minor(here.python):
        yield (
            f"has Python {machine.python} and this one {here.python}; start its worker with Python "
            f"{_minor(here.python)}, as what is sent between them differs"
        )
    for file, digest in here.files.items():
        if machine.files.get(file, "") != digest:
            state = "another file as" if machine.files.get(file) else "no file"
            yield f"has {state} {file}, which the sweep names; copy that of this machine to the same place"
    if measured and not machine.root:
        yield (
            "has a worker that is not root and may not call sudo without a password, and measured points need root; "
            "allow its user to (NOPASSWD), or start the worker as root"
        )
    if measured and machine.lacking:
        yield f"lacks {', '.join(machine.lacking)}; run there: sudo scripts/setup.sh"


def _notes(here: MachineReport, machine: MachineReport, measured: bool) -> Iterator[str]:
    if machine.commit != here.commit:
        yield (
            f"machine {machine.host} has commit {machine.commit[:12] or 'unknown'} of Railyard "
            f"{machine.railyard}, and this one {here.commit[:12] or 'unknown'}"
        )
    if measured and not machine.calibrated:
        yield f"{machine.host} was not calibrated: what it carries is a guess, and railyard calibrate measures it"


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
