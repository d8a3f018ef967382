"""A PyTorch script as a job: what to run, and the processes of its ranks, each beside the agent that it drives."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from railyard.errors import AgentError
from railyard.ownership import make_folder, open_binary
from railyard.reading import Tail
from workloads.pytorch.script_ranks import RECORDED_CALLS, RecordedCall, ScriptRank, ScriptRanks

POINT = "{point}"
"""In an argument of a script it stands for the number of the point, or for ``record`` while its step is recorded."""
ENDLESS = 1_000_000
"""Steps of the agents of a script, more than it does: nobody knows when it ends."""
_FIRST_PORT, _PORTS = 29500, 500
_TICK_S, _BLAME_S, _STOP_S = 0.1, 1.0, 3.0
"""Longest time between two looks; for a script to say why its agent failed; until what was ended has ended."""
_MOST_COLUMNS = 500
_WARNING = b"[W"
"""Beginning of a warning of PyTorch itself, which is in the file alone: each rank has some about names of hosts."""


@dataclass(frozen=True)
class UserScript:
    """The script at ``path`` with its arguments; ``rank`` is an order as of ``any_rank``.

    ``calls`` has for each rank those of the recorded step. It ends where no rank goes on for ``timeout_s``.
    """

    path: str
    arguments: tuple[str, ...]
    rank: ScriptRank
    calls: tuple[tuple[RecordedCall, ...], ...] = ()
    strict: bool = False
    timeout_s: float = 600.0

    def start(self) -> ScriptRanks:
        """The process that forks its ranks; it imports torch first, which takes seconds."""
        return ScriptRanks.start(self.path, self.arguments, strict=self.strict)


def any_rank(world: int, local_world: int, **more: Any) -> ScriptRank:
    """An order for any rank of ``world``, of which ``local_world`` are on a server, without its place and number."""
    return ScriptRank(0, world, 0, local_world, "", 0, "lo", "", **more)


def output_of(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.log"


def trace_of(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.jsonl"


def rendezvous_port(point: int, incarnation: int) -> int:
    """The TCP port of the first rank; another in each incarnation of each point, as the last may not be free yet."""
    return _FIRST_PORT + (point * 8 + incarnation) % _PORTS


@dataclass(frozen=True)
class RankPlace:
    """Where a rank runs: on which host, in which network namespace (-1: that of its parent), with which agent.

    ``interface`` is that of the rendezvous, ``socket`` that of the agent (empty: gloo carries all calls).
    """

    host: int = 0
    netns_fd: int = -1
    interface: str = "lo"
    socket: str = ""


class ScriptTeam:
    """The processes of one incarnation of ``script``, which ``ranks`` forks; what they print is in ``folder``."""

    def __init__(self, ranks: ScriptRanks, script: UserScript, folder: Path, say: Callable[[str], None]) -> None:
        self._ranks, self._script, self._folder, self._say = ranks, script, folder, say
        self._places: Sequence[RankPlace] = ()
        self._progress: tuple[int, ...] = ()
        self._since, self._failed_at = time.monotonic(), math.inf
        self._printed: Tail
        """What the first rank printed and nobody was shown yet, from ``launch`` on."""

    def launch(self, places: Sequence[RankPlace], master: str, port: int) -> None:
        """Start rank r at ``places[r]``; ``master`` is the address of the first one's interface."""
        orders = []
        make_folder(self._folder)
        point = self._folder.name.partition("-")[0]
        self._ranks.arguments = tuple(word.replace(POINT, point) for word in self._script.arguments)
        for number, place in enumerate(places):
            output, trace = output_of(self._folder, number), trace_of(self._folder, number)
            open_binary(output, "wb").close()
            order = replace(
                self._script.rank,
                rank=number,
                local_rank=number % self._script.rank.local_world,
                master=master,
                port=port,
                interface=place.interface,
                output=str(output),
                trace=str(trace),
            )
            if place.socket:
                calls = Path(f"{place.socket}.calls")
                calls.write_bytes(RECORDED_CALLS.dump_json(self._script.calls[number]))
                order = replace(order, socket=place.socket, calls=str(calls))
            orders.append(order)
        self._places, self._printed = places, Tail.of(output_of(self._folder, 0))
        self._ranks.launch(orders, [place.netns_fd for place in places])

    @property
    def over(self) -> bool:
        return len(self._ranks.ended) == len(self._places)

    @property
    def ended_well(self) -> bool:
        return self.over and not self._ranks.failures

    def poll(self, steps: int = 0, *, wait: bool = False, patience_s: float = 0.0) -> None:
        """Show what rank 0 printed; ``AgentError`` for a rank that died, and for a script that does not go on.

        ``steps`` are those that the agents have done; ``wait``: an agent has failed, which its script may explain. A
        rank that died is an error only ``patience_s`` later, as the failure of a host may be why.
        """
        end = time.monotonic() + (_BLAME_S if wait else 0.0)
        self._ranks.poll()
        while not self._ranks.failures and time.monotonic() < end:
            self._hear()
        self._show()
        now, failures = time.monotonic(), self._ranks.failures
        self._failed_at = min(self._failed_at, now if failures else math.inf)
        if failures and now >= self._failed_at + patience_s:
            if failures[0].traceback:
                self._say(failures[0].traceback.rstrip())
            raise AgentError(failures[0].sentence)
        progress = (steps, *(path.stat().st_size for path in sorted(self._folder.iterdir())))
        if progress != self._progress:
            self._progress, self._since = progress, now
        elif now - self._since > self._script.timeout_s and not self.over:
            raise AgentError(f"no rank of the script went on for {self._script.timeout_s:g} s, so it was ended")

    def wait(self) -> None:
        """Wait for the end of all processes, with the errors of ``poll``."""
        while not self.over:
            self._hear()
            self.poll()

    def _hear(self) -> None:
        """Take the next reports, or look again after a moment: at what is printed, and at the time."""
        select.select([self._ranks], [], [], _TICK_S)
        self._ranks.poll()

    def _show(self) -> None:
        """Say the whole lines that rank 0 has printed since the last call."""
        for line in self._printed.lines():
            if not line.startswith(_WARNING):
                self._say(f"  rank 0: {line[:_MOST_COLUMNS].decode(errors='replace').rstrip()}")

    def kill(self, hosts: Sequence[int]) -> None:
        for number, place in enumerate(self._places):
            if place.host in hosts:
                self._ranks.kill(number)

    def stop(self, *, at_once: bool = False) -> None:
        """End what still runs, and say what is to be known of all that they computed; ``at_once``: others wait."""
        if not self._places:
            return
        with suppress(AgentError):  # of the process that forked them: they ended with it
            if at_once:
                self.kill([place.host for place in self._places])
            self._ranks.stop()
            end = time.monotonic() + _STOP_S
            while not self.over and time.monotonic() < end:
                self._hear()
        self._show()
        if self._ranks.warning and self._places[0].socket:
            self._say(f"  {self._ranks.warning}")
        self._printed.close()
        self._places = ()
