"""How the switches of a fabric are shared out to processes of Open vSwitch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from railyard.errors import ConfigError

Processes = Literal["auto"] | int
"""Most processes to start; ``auto``: one for two processors, where packets pass through userspace."""
MOST_PROCESSES = 64


def check_processes(asked: Processes) -> Processes:
    """The number that is asked for; ``ConfigError`` for one that is not ``auto`` and not within 1..64."""
    whole = isinstance(asked, int) and not isinstance(asked, bool)
    if asked != "auto" and not (whole and 1 <= int(asked) <= MOST_PROCESSES):
        message = f"must be auto or a whole number from 1 to {MOST_PROCESSES}, not {asked}"
        raise ConfigError(message, key="switch_processes")
    return asked


def most_processes(asked: Processes, processors: int) -> int:
    """The number that is asked for; ``auto`` is one for two processors.

    A process that forwards much fills a processor, and the hosts and the kernel's share of it another: with two
    processes on two processors they wait for each other (docs/scale.md).
    """
    return max(1, processors // 2) if asked == "auto" else asked


def switch_groups(ports: Mapping[str, int], links: Iterable[tuple[str, str]], processes: int) -> list[list[str]]:
    """Share switches out to at most ``processes`` groups, by their number of ``ports``, largest first.

    Switches with a link between them, or a path of links, are in one group; no group is empty.
    """
    joined = {name: [name] for name in ports}
    for one, other in links:
        if joined[one] is not joined[other]:
            joined[one] += joined[other]
            joined |= dict.fromkeys(joined[other], joined[one])
    parts = list({id(part): part for part in joined.values()}.values())
    parts.sort(key=lambda part: -sum(ports[name] for name in part))
    groups: list[list[str]] = [[] for _ in range(min(processes, len(parts)))]
    for part in parts:
        min(groups, key=lambda group: (sum(ports[name] for name in group), len(group))).extend(part)
    return groups
