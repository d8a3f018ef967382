"""``railyard doctor``: what this machine has and lacks for a run, for people and as JSON; changes nothing."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.parser import Parser
from railyard.checkout import REGISTRY, SETUP, TEMPORARY, as_root, railyard_as_root
from railyard.errors import MachineError, from_os_error
from railyard.limits import check_room, free_memory_bytes
from railyard.process.start import run_program
from railyard.tools import TOOLS
from topos.kernel.needs import NEEDS, refused_features, refused_rights, refused_versions

State = Literal["ok", "missing", "warning"]
OLDEST_PYTHON, NEWEST_PYTHON = (3, 10), (3, 14)
TORCH = "2.13"
"""The release of PyTorch that the extra ``torch`` asks for."""
FEWEST_CORES = 2
LEAST_MEMORY_GIB = 2.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    ``missing`` means that a run is not possible without it, ``warning`` that a run is possible but may be worse or
    need something more. ``remedy`` is a command to type or what to do; empty where nothing needs to be done.
    """

    name: str
    state: State
    sentence: str
    remedy: str = ""


def python_version(version: tuple[int, int]) -> Finding:
    """A version (major, minor) of Python, which is one that Railyard is tested with or not."""
    text = "version {}.{}".format(*version)
    if OLDEST_PYTHON <= version <= NEWEST_PYTHON:
        return Finding("Python", "ok", text)
    tested = "{}.{} to {}.{}".format(*OLDEST_PYTHON, *NEWEST_PYTHON)
    return Finding("Python", "warning", f"{text} is not tested", f"use Python {tested}")


def set_up(text: str, remedy: str) -> list[Finding]:
    """The findings in the output of ``scripts/setup.sh --check``; ``remedy`` is the command that does what is missing.

    Not everything that a set-up installs is needed by a run, so none of it is more than a warning here.
    """
    lines = re.findall(r"^setup: (ok|missing|warning): ([^:]+): (.+)$", text, re.MULTILINE)
    if not lines:
        return [Finding("set-up", "warning", f"scripts/setup.sh --check failed: {text.strip() or 'no output'}")]
    return [
        Finding(name, "ok" if state == "ok" else "warning", sentence, remedy if state == "missing" else "")
        for state, name, sentence in lines
    ]


def all_installed(kind: str, installed: Mapping[str, bool], remedy: Callable[[str], str]) -> list[Finding]:
    """A finding for each thing of ``kind`` that is not installed, with its remedy, or one that all are."""
    lacking = [name for name, there in installed.items() if not there]
    if installed and not lacking:
        return [Finding(f"{kind}s", "ok", f"all {len(installed)} that are required are installed")]
    return [Finding(f"{kind} {name}", "missing", "is not installed", remedy(name)) for name in lacking]


def frameworks(installed: Mapping[str, bool], remedy: str) -> Finding:
    there = [name for name in installed if installed[name]]
    if there:
        return Finding("OpenFlow framework", "ok", " and ".join(there))
    return Finding("OpenFlow framework", "missing", f"neither {' nor '.join(installed)} is installed", remedy)


def pytorch(version: str, remedy: str) -> Finding:
    """The ``version`` of PyTorch, empty where it is not installed; ``remedy`` is the command that installs it."""
    if version.startswith(f"{TORCH}."):
        return Finding("PyTorch", "ok", version)
    lacking = f"{version} is not the {TORCH} that is tested" if version else "is not installed"
    return Finding("PyTorch", "warning", f"{lacking}; only railyard record and torchrun need it", remedy)


def datapath(chosen: str, why: str) -> Finding:
    """How runs forward packets: ``chosen`` is ``bpf`` or ``ovs``; ``why``: what refused a faster one."""
    sentence = f"runs forward by {chosen}{f' ({why})' if why else ''}"
    return Finding("datapath", "warning" if why else "ok", sentence)


def namespaces(error: str) -> Finding:
    """The right of root to make network namespaces; ``error`` says why it has none."""
    if not error:
        return Finding("network namespaces", "ok", "permitted")
    remedy = "in a container: what is missing below, and --security-opt apparmor=unconfined where AppArmor confines it"
    return Finding("network namespaces", "missing", f"this machine does not permit them: {error}", remedy)


def needs(refused: Mapping[str, str]) -> list[Finding]:
    """A finding for each of ``NEEDS`` that was ``refused``, with the reason."""
    lacking = [(name, why, *NEEDS[name]) for name, why in refused.items()]
    return [Finding(name, state, f"{why}: {without}", remedy) for name, why, state, without, remedy in lacking]


def calibration(state: str, command: str) -> Finding:
    """The calibration of this machine, if there is one.

    ``state`` is ``ok``, ``none``, ``other machine`` or why the file cannot be read; ``command`` calibrates.
    """
    if state == "ok":
        return Finding("calibration", "ok", "of this machine")
    sentences = {
        "none": "there is none, so runs assume a slow machine",
        "other machine": "of another kernel or number of processors, so runs assume a slow machine",
    }
    return Finding("calibration", "warning", sentences.get(state, state), command)


def size(cores: int, memory_gib: float) -> Finding:
    """The ``cores`` processors and ``memory_gib`` GiB of available memory, compared with what default settings need."""
    text = f"{cores} processors, {memory_gib:.1f} GiB of free memory"
    if cores >= FEWEST_CORES and memory_gib >= LEAST_MEMORY_GIB:
        return Finding("size", "ok", text)
    wanted = f"at least {FEWEST_CORES} processors and {LEAST_MEMORY_GIB:g} GiB of free memory"
    return Finding("size", "warning", text, f"use a machine with {wanted}, or smaller workloads")


def root(is_root: bool, command: str) -> Finding:
    """The rights of this process; ``command`` runs an experiment as root."""
    if is_root:
        return Finding("root", "ok", "this process is root")
    return Finding("root", "warning", "this process is not root, and a run needs root", command)


# ---- what is read off the machine ------------------------------------------------------------------------------------


_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
"""Where root finds programs, which is more than other people's shells search."""
_PATIENCE_S = 20.0


def setup_output() -> str:
    done = run_program([str(SETUP), "--check"], _PATIENCE_S)
    return done.out or done.err


def requirements() -> dict[str, bool]:
    """Name of each Python package that the metadata of this project require -> installed; empty without metadata."""
    try:
        wanted = metadata.requires("railyard") or []
    except metadata.PackageNotFoundError:
        return {}
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in wanted if "extra ==" not in line]
    return {name: any(True for _ in metadata.distributions(name=name)) for name in names}


def installed_frameworks() -> dict[str, bool]:
    """Name of each OpenFlow framework -> installed."""
    from controllers.openflow.app import PACKAGES

    return {name: util.find_spec(package) is not None for name, package in PACKAGES.items()}


def torch_version() -> str:
    return next((there.version for there in metadata.distributions(name="torch")), "")


def programs() -> dict[str, bool]:
    """Name of each program of the distribution that a run starts -> installed."""
    return {tool: shutil.which(tool, path=_PATH) is not None for tool in TOOLS}


def chosen_datapath() -> tuple[str, str]:
    """The datapath that runs would take, and what refused a faster one; tried in a namespace of its own, root only."""
    from topos.kernel import namespaces
    from topos.kernel.fastpath.process import make_forwarder

    (fd,) = namespaces.make(1)
    try:
        forwarder, found = make_forwarder("auto", fd, ports=2, flows=2)
        if forwarder is not None:
            forwarder.close()
    finally:
        os.close(fd)
    return found["datapath"], found["why"]


def namespaces_error() -> str:
    """Why a run cannot make namespaces or start programs in them, empty if it can; root only."""
    from topos.kernel.namespaces import check_root_directory

    error = _failure("unshare", "--net", "--mount", "true")
    try:
        check_root_directory()
    except MachineError as chroot:
        return error or str(chroot)
    return error


def calibration_state() -> str:
    """``ok`` for a calibration of this machine, ``none``, ``other machine``, or why the file cannot be read."""
    try:
        from measure.live.calibration import CALIBRATION_FILE, load_calibration

        if load_calibration() is not None:
            return "ok"
        return "other machine" if CALIBRATION_FILE.exists() else "none"
    except ImportError as error:
        return f"it cannot be read without {error.name or error}"
    except (MachineError, OSError) as error:
        return str(error)


def folders() -> list[Finding]:
    """A finding for each folder of this machine that a run writes to, by default, and cannot; or one that it can."""
    lacking = []
    for place in (Path.cwd(), REGISTRY, TEMPORARY):
        try:
            check_room(place)
        except OSError as error:
            lacking.append(Finding("disk", "missing", str(from_os_error(error)), "make it writable, or make room"))
    return lacking or [Finding("disk", "ok", "room for a run")]


def _failure(*command: str) -> str:
    """Output of a command that failed, or the reason why it could not run; empty if it succeeds."""
    program = shutil.which(command[0], path=_PATH)
    if program is None:
        return f"{command[0]} is missing"
    done = run_program([program, *command[1:]], _PATIENCE_S)
    return "" if done.status == 0 else done.err.strip() or f"{command[0]} ended with status {done.status}"


# ---- the report ------------------------------------------------------------------------------------------------------


RUN = SETUP.with_name("run.sh")
_COLOURS = {"ok": "green", "missing": "red", "warning": "yellow"}


def main(arguments: Sequence[str]) -> int:
    """Print the findings; returns 0 if root can run experiments, else 3."""
    parser = Parser(
        prog="railyard doctor", description="Say what this machine has and lacks for a run; change nothing."
    )
    parser.add_argument("--json", action="store_true", help="output as JSON, for other programs")
    options = parser.read(arguments)
    found = findings()
    if options.json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        print_findings(found, Console())
    return exit_status(found)


def findings() -> list[Finding]:
    """Findings about this machine, in the order in which a person would mend them; changes nothing."""
    if platform.system() != "Linux":
        return [Finding("system", "missing", f"runs need Linux, not {platform.system()}", "use a virtual machine")]
    in_checkout, is_root = SETUP.exists(), os.geteuid() == 0
    remedy = as_root("scripts/setup.sh")
    reinstall = remedy if in_checkout else "install railyard again with pip"
    return [
        python_version(sys.version_info[:2]),
        *(set_up(setup_output(), remedy) if in_checkout else ()),
        *all_installed("Python package", requirements(), lambda _: reinstall),
        frameworks(installed_frameworks(), reinstall),
        pytorch(torch_version(), f"{remedy} --torch" if in_checkout else "pip install 'railyard[torch]'"),
        *all_installed(
            "program", programs(), lambda tool: remedy if in_checkout else as_root(f"apt install {TOOLS[tool]}")
        ),
        *needs(refused_versions()),
        *(_kernel() if is_root else ()),
        *folders(),
        calibration(calibration_state(), railyard_as_root("calibrate")),
        size(len(os.sched_getaffinity(0)), free_memory_bytes() / (1 << 30)),
        root(is_root, as_root(shlex.quote(str(RUN))) if in_checkout else railyard_as_root("run rails")),
    ]


def _kernel() -> list[Finding]:
    """Findings about the kernel; no features where namespaces or packages are missing, which other findings say."""
    refused = refused_rights()
    tried: list[Finding] = []
    with suppress(MachineError, ImportError):
        refused |= refused_features()
        if not refused:
            tried.append(Finding("kernel", "ok", "permits all that runs use"))
        tried.append(datapath(*chosen_datapath()))
    return [namespaces(namespaces_error()), *needs(refused), *tried]


def exit_status(found: Sequence[Finding]) -> int:
    """0 if root can run experiments, otherwise that of ``MachineError``."""
    return MachineError.exit_status if any(finding.state == "missing" for finding in found) else 0


def print_findings(found: Sequence[Finding], console: Console) -> None:
    """Print the state and the sentence of each finding, the remedy below it, and whether a run is possible."""
    table = Table.grid(padding=(0, 2))
    for finding in found:
        table.add_row(Text(finding.state, _COLOURS[finding.state]), Text(f"{finding.name}: {finding.sentence}"))
        if finding.remedy:
            table.add_row("", Text(finding.remedy, "bold"))
    console.print(table)
    unseen = ", as far as can be seen without root" * (os.geteuid() != 0)
    possible = (
        "A run is not possible: see what is missing" if exit_status(found) else f"Root can run experiments{unseen}"
    )
    console.print(Text(f"{possible}.", "bold"))
