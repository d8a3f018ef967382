"""The checks of a machine: from what was read off it to findings. Pure; ``experiments.doctor.probes`` reads it off."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from railyard.tools import TOOLS

State = Literal["ok", "missing", "warning"]
OLDEST_PYTHON, NEWEST_PYTHON = (3, 10), (3, 13)
FEWEST_CORES = 2
LEAST_MEMORY_GIB = 2.0
"""Free memory of the smallest machine on which the experiments with their default settings are run."""
SET_UP = "sudo scripts/setup.sh"


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


@dataclass(frozen=True)
class Machine:
    """What was read off a machine.

    - ``system``, ``python``: name of the operating system's kernel, (major, minor) of this Python;
    - ``set_up``: the output of ``scripts/setup.sh --check``, None outside a checkout;
    - ``requirements``, ``frameworks``: names of required Python packages, and of OpenFlow frameworks -> installed;
    - ``tools``: names of the programs in ``railyard.tools.TOOLS`` that are installed;
    - ``kernel_datapath``: whether the kernel has Open vSwitch's module, loaded or not;
    - ``namespaces_error``, ``chroot_error``: why a run cannot make its namespaces or start programs in them, else
      empty; None if that is known to root only;
    - ``calibration``: ``ok``, ``none``, ``other machine`` or why the file cannot be read;
    - ``root``, ``command``: whether this process is root, and the path of the ``railyard`` command;
    - ``cores``, ``memory_gib``: processors that this process may use, available memory in GiB.
    """

    system: str
    python: tuple[int, int]
    set_up: str | None
    requirements: dict[str, bool]
    frameworks: dict[str, bool]
    tools: Collection[str]
    kernel_datapath: bool
    namespaces_error: str | None
    chroot_error: str | None
    calibration: str
    root: bool
    command: str
    cores: int
    memory_gib: float


def check(machine: Machine) -> list[Finding]:
    """The findings about a machine, in the order in which a person would mend them."""
    return [
        *_system(machine),
        *set_up_findings(machine.set_up),
        *_packages(machine),
        *_tools(machine),
        *_kernel(machine),
        *_calibration(machine),
        *_size(machine),
        *_root(machine),
    ]


def _system(machine: Machine) -> Iterator[Finding]:
    if machine.system != "Linux":
        yield Finding("system", "missing", f"runs need Linux, this is {machine.system}", "use a Linux virtual machine")
    version = "{}.{}".format(*machine.python)
    if OLDEST_PYTHON <= machine.python <= NEWEST_PYTHON:
        yield Finding("Python", "ok", f"version {version}")
    else:
        tested = "{}.{} to {}.{}".format(*OLDEST_PYTHON, *NEWEST_PYTHON)
        yield Finding("Python", "warning", f"version {version} is not tested", f"use Python {tested}")


def set_up_findings(text: str | None) -> Iterator[Finding]:
    """The findings in the output of ``scripts/setup.sh --check``, with the set-up as the remedy of what is missing."""
    if text is None:
        return
    lines = re.findall(r"^setup: (ok|missing|warning): ([^:]+): (.+)$", text, re.MULTILINE)
    for state, name, sentence in lines:
        yield Finding(name, state, sentence, SET_UP if state == "missing" else "")
    if not lines:
        yield Finding("set-up", "warning", f"scripts/setup.sh --check failed: {text.strip() or 'no output'}")


def _packages(machine: Machine) -> Iterator[Finding]:
    again = SET_UP if machine.set_up is not None else "install railyard again with pip"
    lacking = [name for name, installed in machine.requirements.items() if not installed]
    for name in lacking:
        yield Finding(f"Python package {name}", "missing", "is not installed", again)
    if machine.requirements and not lacking:
        yield Finding("Python packages", "ok", f"all {len(machine.requirements)} required packages are installed")
    installed = [name for name, there in machine.frameworks.items() if there]
    if installed:
        yield Finding("OpenFlow framework", "ok", " and ".join(installed))
    else:
        yield Finding("OpenFlow framework", "missing", f"neither {' nor '.join(machine.frameworks)}", again)


def _tools(machine: Machine) -> Iterator[Finding]:
    lacking = [tool for tool in TOOLS if tool not in machine.tools]
    for tool in lacking:
        command = SET_UP if machine.set_up is not None else f"sudo apt install {TOOLS[tool]}"
        yield Finding(f"program {tool}", "missing", "is not installed", command)
    if not lacking:
        yield Finding("programs", "ok", f"all {len(TOOLS)} programs that a run starts are installed")


def _kernel(machine: Machine) -> Iterator[Finding]:
    if machine.kernel_datapath:
        yield Finding("kernel module openvswitch", "ok", "runs use the kernel datapath")
    else:
        yield Finding(
            "kernel module openvswitch",
            "warning",
            "this kernel has none, so runs use the slower userspace datapath",
        )
    if machine.namespaces_error:
        yield Finding(
            "network namespaces",
            "missing",
            f"this machine does not permit them: {machine.namespaces_error}",
            "use a virtual machine, or a container with all capabilities",
        )
    elif machine.namespaces_error is not None:
        yield Finding("network namespaces", "ok", "permitted")
    if machine.chroot_error:
        yield Finding("root directory", "missing", machine.chroot_error)


def _calibration(machine: Machine) -> Iterator[Finding]:
    state = machine.calibration
    sentences = {
        "ok": "of this machine",
        "none": "there is none, so runs assume a slow machine",
        "other machine": "of another kernel or number of processors, so runs assume a slow machine",
    }
    if state == "ok":
        yield Finding("calibration", "ok", sentences[state])
    else:
        command = "scripts/calibrate.py" if machine.set_up is not None else f"{machine.command} calibrate"
        yield Finding("calibration", "warning", sentences.get(state, state), f"sudo {command}")


def _size(machine: Machine) -> Iterator[Finding]:
    few, little = machine.cores < FEWEST_CORES, machine.memory_gib < LEAST_MEMORY_GIB
    wanted = f"at least {FEWEST_CORES} processors and {LEAST_MEMORY_GIB:g} GiB of free memory"
    yield Finding(
        "size",
        "warning" if few or little else "ok",
        f"{machine.cores} processors, {machine.memory_gib:.1f} GiB of free memory",
        f"use a machine with {wanted}, or smaller workloads" if few or little else "",
    )


def _root(machine: Machine) -> Iterator[Finding]:
    if machine.root:
        yield Finding("root", "ok", "this process is root")
    else:
        command = "scripts/run.sh" if machine.set_up is not None else f"{machine.command} run rails"
        yield Finding("root", "warning", "this process is not root, and a run needs root", f"sudo {command}")
