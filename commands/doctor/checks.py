"""The checks of a machine: from what was read off it to findings. Pure; ``commands.doctor.probes`` reads it off."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "missing", "warning"]
OLDEST_PYTHON, NEWEST_PYTHON = (3, 10), (3, 13)
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
    """Whether Railyard is tested with this version (major, minor) of Python."""
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
    """Whether one of the OpenFlow frameworks is installed."""
    there = [name for name in installed if installed[name]]
    if there:
        return Finding("OpenFlow framework", "ok", " and ".join(there))
    return Finding("OpenFlow framework", "missing", f"neither {' nor '.join(installed)} is installed", remedy)


def datapath(chosen: str, why: str) -> Finding:
    """How runs forward packets: ``chosen`` is ``bpf`` or ``ovs``; ``why``: what refused a faster one."""
    sentence = f"runs forward by {chosen}{f' ({why})' if why else ''}"
    return Finding("datapath", "warning" if why else "ok", sentence)


def namespaces(error: str) -> Finding:
    """Whether root may make network namespaces; ``error`` says why not."""
    if not error:
        return Finding("network namespaces", "ok", "permitted")
    remedy = "use a virtual machine, or a container with all capabilities"
    return Finding("network namespaces", "missing", f"this machine does not permit them: {error}", remedy)


def calibration(state: str, command: str) -> Finding:
    """Whether there is a calibration of this machine.

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
    """Whether ``cores`` processors and ``memory_gib`` GiB of available memory are enough for the default settings."""
    found = f"{cores} processors, {memory_gib:.1f} GiB of free memory"
    if cores >= FEWEST_CORES and memory_gib >= LEAST_MEMORY_GIB:
        return Finding("size", "ok", found)
    wanted = f"at least {FEWEST_CORES} processors and {LEAST_MEMORY_GIB:g} GiB of free memory"
    return Finding("size", "warning", found, f"use a machine with {wanted}, or smaller workloads")


def root(is_root: bool, command: str) -> Finding:
    """Whether this process is root; ``command`` runs an experiment as root."""
    if is_root:
        return Finding("root", "ok", "this process is root")
    return Finding("root", "warning", "this process is not root, and a run needs root", command)
