"""Goodput in a ring of hosts on any Mininet network: every host sends to the next one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from experiments.bench import NotMeasured
from railyard.checkout import child_environment

_PATIENCE_S = 60.0
"""Seconds after the measurement within which the processes of the hosts must end."""


def ring_goodput(hosts: Sequence[Any], seconds: float) -> list[float]:
    """Goodput received by each of ``hosts`` in Mb/s, over ``seconds``; ``NotMeasured`` names the first host without."""
    program = [sys.executable, "-m", "experiments.bench.goodput", "--seconds", str(seconds)]
    children: list[subprocess.Popen[bytes]] = []
    try:
        for place, host in enumerate(hosts):
            to = hosts[(place + 1) % len(hosts)]
            command = [*program, "--listen", host.IP(), "--to", to.IP()]
            children.append(host.popen(command, env=child_environment()))
        deadline = time.monotonic() + seconds + _PATIENCE_S
        return [_goodput(host.name, child, deadline) for host, child in zip(hosts, children, strict=True)]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
            child.communicate()


def _goodput(host: str, child: subprocess.Popen[bytes], deadline: float) -> float:
    """Goodput in Mb/s that the measuring process of ``host`` printed."""
    try:
        output, errors = child.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"the goodput of host {host}: its process did not end in time") from None
    try:
        return float(output)
    except ValueError:
        said = (errors or b"").decode(errors="replace").strip().splitlines()
        why = said[-1] if said else f"its process ended with status {child.returncode} without output"
        raise NotMeasured(f"the goodput of host {host}: {why}") from None
