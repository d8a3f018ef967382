"""The ranks of a script that are run on shapes alone, for a world of any size: rank 0, and those it has to do with.

One process imports torch, and a fork of it runs each rank. Ranks that a recorded one sends to or receives from, such as
the other stages of a pipeline, are recorded too; all others are equal to one of these.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from railyard.errors import ConfigError, RailyardError
from railyard.ownership import hand_over, temporary_folder
from railyard.process.start import become_caller, start_fork
from workloads.pytorch.experts import Experts
from workloads.pytorch.trace import RankTrace, read_trace

if TYPE_CHECKING:
    from workloads.pytorch.fake_rank import RankOrder

AT_ONCE = 2
"""Ranks that compute at the same time; those that wait for an object of another are not counted."""
MOST_WORLD = 1 << 16
MOST_TEXT = 300
"""Most characters of a sentence, or of a place: both go through a pipe in one piece, whatever they are written as."""
MOST_RANKS = 256
"""Most ranks that are recorded of one world."""
WITHOUT_TORCH = "needs PyTorch: install the extra torch (docs/torch.md)"


def record_shapes(
    script: str,
    arguments: Sequence[str],
    world: int,
    *,
    steps: int = 0,
    experts: Experts | None = None,
    strict: bool = False,
    gpus_per_server: int = 1,
    ranks: Sequence[int] = (0,),
) -> dict[int, RankTrace]:
    """Run ``ranks`` of ``world``, and those that they send to or receive from, on shapes alone; their traces by rank.

    ``steps`` 0: as many as are needed, of which the last is the one to keep. ``ConfigError`` names the line of the
    script that cannot be recorded; ``RailyardError`` the rank that died, whose traceback is on standard error by then.
    """
    if not Path(script).is_file():
        raise ConfigError("is no file; name the script that torchrun would run", source=script)
    try:
        from workloads.pytorch.fake_rank import RankOrder
    except ModuleNotFoundError as error:
        raise ConfigError(WITHOUT_TORCH if error.name == "torch" else str(error)) from None
    with temporary_folder() as place:
        hand_over(place)
        order = RankOrder(
            os.path.abspath(script), tuple(arguments), 0, world, gpus_per_server, steps, experts, strict, place
        )
        _Ranks(order, ranks).run()
        traces = {trace.rank: trace for trace in map(read_trace, sorted(place.glob("*.jsonl")))}
    return dict(sorted(traces.items()))


class _Ranks:
    """The processes of the ranks, each told by one pipe what it wants."""

    def __init__(self, order: RankOrder, ranks: Sequence[int]) -> None:
        self._order, self._todo, self._seen = order, list(ranks), set(ranks)
        self._running: dict[int, int] = {}
        self._waiting: set[int] = set()
        self._told: set[str] = set()
        self._refusals: list[ConfigError] = []
        self._source, self._sink = os.pipe()
        self._rest = b""

    def run(self) -> None:
        """Run all to their ends; the first that fails ends the others."""
        try:
            while self._todo or self._running:
                while self._todo and len(self._running) - len(self._waiting) < AT_ONCE:
                    self._start(self._todo.pop(0))
                if select.select([self._source], [], [], 0.02)[0]:
                    self._hear()
                for pid in list(self._running):
                    self._look_at(pid)
        finally:
            for pid in self._running:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            os.close(self._source)
            os.close(self._sink)

    def _start(self, rank: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        order = replace(self._order, rank=rank)

        def tell(op: str, *values: int | str | None) -> None:
            told = [value[:MOST_TEXT] if isinstance(value, str) else value for value in values]
            os.write(self._sink, json.dumps([rank, op, *told]).encode() + b"\n")

        def act() -> int:
            from workloads.pytorch.fake_rank import run

            signal.signal(signal.SIGINT, signal.SIG_IGN)  # this process ends it
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for fd in (0, 1):  # it prints of data that it does not have
                os.dup2(os.open(os.devnull, os.O_RDWR), fd)
            become_caller()
            return run(order, tell)

        self._running[start_fork(act)] = rank

    def _hear(self) -> None:
        *lines, self._rest = (self._rest + os.read(self._source, 1 << 16)).split(b"\n")
        for line in lines:
            rank, op, *values = json.loads(line)
            if op == "want" and values[0] not in self._seen:
                if len(self._seen) >= MOST_RANKS:
                    raise ConfigError(f"more than {MOST_RANKS} ranks send to one another; record a smaller world")
                self._seen.add(values[0])
                self._todo.append(values[0])
            elif op == "waits":
                self._waiting.add(rank)
            elif op == "goes":
                self._waiting.discard(rank)
            elif op == "say" and values[0] not in self._told:
                self._told.add(values[0])
                print(f"railyard: {values[0]}", file=sys.stderr)
            elif op == "refuse":
                self._refusals.append(ConfigError(values[0], source=values[1]))

    def _look_at(self, pid: int) -> None:
        """Take the end of a process, if it has ended; raises the error of one that failed."""
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            return
        rank, code = self._running.pop(pid), os.waitstatus_to_exitcode(status)
        self._waiting.discard(rank)
        while select.select([self._source], [], [], 0)[0]:
            self._hear()
        if code:
            with suppress(IndexError):
                raise self._refusals[0]
            raise RailyardError(f"{self._order.script}: rank {rank} of {self._order.world} ended with status {code}; "
                                "what it wrote is above")  # fmt: skip
