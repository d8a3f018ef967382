"""Reads off this machine what the checks need, changing nothing.

What may be missing is imported where it is needed, so that this works where the installation is incomplete.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib import metadata, util
from pathlib import Path

from railyard.checkout import SETUP
from railyard.errors import MachineError
from railyard.tools import TOOLS

_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
"""Where root finds programs, which is more than other people's shells search."""
_PATIENCE_S = 20.0


def set_up() -> str:
    """The output of ``scripts/setup.sh --check``."""
    try:
        done = subprocess.run([SETUP, "--check"], capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout or done.stderr


def requirements() -> dict[str, bool]:
    """Name of each Python package that the metadata of this project require -> installed; empty without metadata."""
    try:
        wanted = metadata.requires("railyard") or []
    except metadata.PackageNotFoundError:
        return {}
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in wanted if "extra ==" not in line]
    return {name: any(True for _ in metadata.distributions(name=name)) for name in names}


def frameworks() -> dict[str, bool]:
    """Name of each OpenFlow framework -> installed."""
    from controllers.openflow.app import PACKAGES

    return {name: util.find_spec(package) is not None for name, package in PACKAGES.items()}


def programs() -> dict[str, bool]:
    """Name of each program of the distribution that a run starts -> installed."""
    return {tool: shutil.which(tool, path=_PATH) is not None for tool in TOOLS}


def datapath() -> tuple[str, str]:
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


def calibration() -> str:
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


def free_memory_gib() -> float:
    """Memory that is available without swapping, in GiB."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) / (1 << 20) if found else 0.0


def _failure(*command: str) -> str:
    """Output of a command that failed, or the reason why it could not run; empty if it succeeds."""
    program = shutil.which(command[0], path=_PATH)
    if program is None:
        return f"{command[0]} is missing"
    try:
        done = subprocess.run([program, *command[1:]], capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or f"{command[0]} ended with status {done.returncode}"
