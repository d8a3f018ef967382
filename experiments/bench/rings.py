"""One ring of hosts on any Mininet net: everybody sends to the next host, everybody's goodput is returned."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from railyard.checkout import ROOT


def ring_goodput(hosts: Sequence[Any], seconds: float) -> list[float]:
    """Goodput received by each of ``hosts`` in Mb/s; 0 where nothing came through."""
    program = [sys.executable, "-m", "experiments.bench.goodput", "--seconds", str(seconds)]
    children = []
    for place, host in enumerate(hosts):
        to = hosts[(place + 1) % len(hosts)]
        command = [*program, "--listen", host.IP(), "--to", to.IP()]
        children.append(host.popen(command, cwd=str(ROOT)))
    results = []
    for child in children:
        output, _ = child.communicate(timeout=seconds + 60)
        text = output.decode().strip()
        results.append(float(text) if text else 0.0)
    return results
