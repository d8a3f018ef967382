"""Reads off this machine what the checks need, changing nothing.

What may be missing is imported where it is needed, so that this works where the installation is incomplete.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path

from experiments.doctor.checks import Machine
from railyard.checkout import SETUP
from railyard.errors import MachineError
from railyard.tools import TOOLS

_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
"""Where root finds programs, which is more than other people's shells search."""
_PATIENCE_S = 20.0


def read_machine() -> Machine:
    """What this machine has."""
    root = os.geteuid() == 0
    return Machine(
        system=platform.system(),
        python=sys.version_info[:2],
        set_up=_set_up(),
        requirements=_requirements(),
        frameworks=_frameworks(),
        tools={tool for tool in TOOLS if shutil.which(tool, path=_PATH)},
        kernel_datapath=Path("/sys/module/openvswitch").exists()
        or _status("modprobe", "--dry-run", "--quiet", "openvswitch") == "",
        namespaces_error=_status("unshare", "--net", "--mount", "true") if root else None,
        chroot_error=_chroot_error() if root else None,
        calibration=_calibration(),
        root=root,
        command=str(Path(sys.prefix) / "bin" / "railyard"),  # in full, since sudo searches other folders
        cores=len(os.sched_getaffinity(0)),
        memory_gib=_available_gib(),
    )


def _status(*command: str) -> str:
    """Empty if the command succeeds, otherwise what it said or how it failed."""
    program = shutil.which(command[0], path=_PATH)
    if program is None:
        return f"{command[0]} is missing"
    try:
        done = subprocess.run([program, *command[1:]], capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or f"{command[0]} ended with status {done.returncode}"


def _set_up() -> str | None:
    if not SETUP.exists():
        return None
    try:
        done = subprocess.run([SETUP, "--check"], capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout or done.stderr


def _requirements() -> dict[str, bool]:
    """Name of each package that this project's metadata require -> installed; empty if it has no metadata."""
    try:
        wanted = metadata.requires("railyard") or []
    except metadata.PackageNotFoundError:
        return {}
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in wanted if "extra ==" not in line]
    return {name: any(True for _ in metadata.distributions(name=name)) for name in names}


def _frameworks() -> dict[str, bool]:
    from controllers.openflow.app import PACKAGES

    return {name: util.find_spec(package) is not None for name, package in PACKAGES.items()}


def _chroot_error() -> str:
    from topos.kernel.namespaces import check_root_directory

    try:
        check_root_directory()
    except MachineError as error:
        return str(error)
    return ""


def _calibration() -> str:
    from measure.live.calibration import CALIBRATION_FILE, load_calibration

    try:
        if load_calibration() is not None:
            return "ok"
        return "other machine" if CALIBRATION_FILE.exists() else "none"
    except (MachineError, OSError) as error:
        return str(error)


def _available_gib() -> float:
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) / (1 << 20) if found else 0.0
