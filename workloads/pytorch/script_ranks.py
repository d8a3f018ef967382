"""A user's PyTorch script as ranks: the client of the process that imports torch once and forks them. No torch here.

::

    with ScriptRanks.start("train.py", ["--epochs", "1"]) as scripts:
        scripts.launch(ranks, netns_fds)
        while len(scripts.ended) < len(ranks):
            select.select([scripts], [], [])
            scripts.poll()

A rank that fails, or two that wait for one another, end all the others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter

from railyard.errors import AgentError, MachineError
from railyard.validation import from_plain
from workloads.agent.launcher import LauncherProcess
from workloads.pytorch.standstill import Awaited, RankReport, standstill
from workloads.pytorch.trace import CallKind


@dataclass(frozen=True)
class RecordedCall:
    """A call of the recorded step of a rank, after ``seconds`` of computing; ``on_rail``: its agent carries it.

    One of kind ``end`` may be the last: it has the seconds up to the end of the step.
    """

    kind: CallKind | Literal["end"]
    ranks: tuple[int, ...]
    bytes: int
    on_rail: bool
    seconds: float = 0.0


RECORDED_CALLS: TypeAdapter[tuple[RecordedCall, ...]] = TypeAdapter(tuple[RecordedCall, ...])
"""What the file ``ScriptRank.calls`` holds."""


@dataclass(frozen=True)
class ScriptRank:
    """One rank of a script: the environment that torchrun would give it, and what is done with its calls.

    Its output goes to the file ``output``, its trace to ``trace`` ("": none). It is ended well after ``steps`` steps
    (0: when its script ends). ``socket`` is that of its agent ("": gloo carries all calls), which carries calls after
    ``setup_steps`` steps, those of the file ``calls`` (``RECORDED_CALLS``) in their order; others must be smaller than
    ``front_end_below``. ``compute``: real, scaled:X or recorded, see ``workloads.pytorch.course.Pace``. A script that
    ``resumes`` from its checkpoint may have no step left for its agent.
    """

    rank: int
    world: int
    local_rank: int
    local_world: int
    master: str
    port: int
    interface: str
    output: str
    trace: str = ""
    steps: int = 0
    socket: str = ""
    setup_steps: int = 2
    calls: str = ""
    front_end_below: int = 65536
    compute: str = "real"
    resumes: bool = False


@dataclass(frozen=True)
class ScriptLaunch:
    """The ranks of a launch, their script as it was typed with its arguments, and the folder where it was typed."""

    script: str
    arguments: tuple[str, ...]
    folder: str
    strict: bool
    ranks: tuple[ScriptRank, ...]


class ScriptFailure(NamedTuple):
    """Failure of ``rank``, with the ``traceback`` of its script if that raised an exception (else "")."""

    rank: int
    sentence: str
    traceback: str


class ScriptRanks:
    """The ranks of a script, with all that they reported up to the last ``poll``."""

    def __init__(self, process: LauncherProcess, script: str, arguments: Sequence[str], strict: bool) -> None:
        self._process = process
        self._script, self._strict = script, strict
        self.arguments = tuple(arguments)
        """Those of the script, which may be others at each launch."""
        self._team = -1
        self._forget()

    def _forget(self) -> None:
        self.ended: dict[int, int] = {}
        """Exit status by rank (minus the signal's number), 0 for one whose script ended well, however it left."""
        self.steps: dict[int, int] = {}
        """Number of steps that each rank has done."""
        self.computes: dict[int, dict[str, float]] = {}
        """What each rank reported at its end about its computing (``workloads.pytorch.course.Pace.report``)."""
        self._failures: list[tuple[bool, ScriptFailure]] = []
        self._reports: dict[int, RankReport] = {}
        self._well: set[int] = set()
        self._stopping = False

    @staticmethod
    def start(script: str, arguments: Sequence[str], *, strict: bool = False) -> ScriptRanks:
        """Start the process that will fork the ranks; early, and from a thread that lasts as long."""
        if find_spec("torch") is None:
            raise MachineError("PyTorch is not installed here: install the extra torch (docs/torch.md)")
        process = LauncherProcess.start("workloads.pytorch.ranks", "ranks of a script")
        return ScriptRanks(process, script, arguments, strict)

    def launch(self, ranks: Sequence[ScriptRank], netns_fds: Sequence[int]) -> None:
        """Fork the ranks, each in the network namespace of its descriptor (-1: that of this process).

        Those of the launch before, if there was one, have ended; nothing of them is kept.
        """
        self._team += 1
        self._forget()
        self._reports.update((rank.rank, RankReport()) for rank in ranks)
        self._real = all(rank.compute == "real" for rank in ranks)
        order = ScriptLaunch(self._script, self.arguments, os.getcwd(), self._strict, tuple(ranks))
        self._process.launch(self._team, TypeAdapter(ScriptLaunch).dump_json(order), netns_fds)

    def fileno(self) -> int:
        """File descriptor for ``select``: readable when ``poll`` has a report to read."""
        return self._process.fileno()

    def poll(self) -> None:
        """Take the reports that have come; does not wait. ``AgentError`` if the process that forks is gone."""
        while self._process.pending:
            for report in self._process.reports():
                if report["team"] == self._team:
                    self._take(report)

    def _take(self, report: Mapping[str, Any]) -> None:
        rank, news = report["rank"], report.get("said", {})
        if "waits" in news:
            awaited = news["waits"]
            self._reports[rank].hear(
                None if awaited is None else from_plain(Awaited, awaited, "a wait of a rank"), news["made"]
            )
            self._look_for_standstill()
        if "step" in news:
            self.steps[rank] = news["step"]
        if "computes" in news:
            self.computes[rank] = news["computes"]
        if "error" in news:
            failure = ScriptFailure(rank, news["error"], news.get("traceback", ""))
            self._failures.append((bool(news.get("consequence")), failure))
        if "done" in news:
            self._well.add(rank)
        if "done" in news or "exited" in report:
            self._reports[rank].ended = True
        if "exited" in report:
            self._exit(rank, report["exited"])
        if not self._stopping and all(known.ended for known in self._reports.values()):
            self.stop()

    def _exit(self, rank: int, status: int) -> None:
        self.ended[rank] = 0 if rank in self._well else status
        if status == 0 or self._stopping:
            return
        if not any(failure.rank == rank for _, failure in self._failures):
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            sentence = f"the script of rank {rank} {how} in step {self.steps.get(rank, 0)}"
            lost_agent = status == AgentError.exit_status  # with which it ends when its agent has ended
            self._failures.append((lost_agent, ScriptFailure(rank, sentence, "")))
        self.stop()

    def _look_for_standstill(self) -> None:
        sentence = None if self._stopping else standstill(self._reports)
        if sentence is not None:
            rank = int(sentence.split()[1])
            self._failures.append((False, ScriptFailure(rank, sentence, "")))
            self.stop()

    @property
    def failures(self) -> list[ScriptFailure]:
        """Failures, the cause first: those that follow from the end of another rank come last."""
        return [failure for _, failure in sorted(self._failures, key=lambda entry: entry[0])]

    @property
    def warning(self) -> str:
        """A sentence if computes took longer than their processor time, or than they were told; else ""."""
        told, cores = self.computes.values(), len(os.sched_getaffinity(0))
        wall, processor, late = (sum(report[key] for report in told) for key in ("wall_s", "processor_s", "late_s"))
        if late > 0.05 * wall:
            return (
                f"{late:.2f} of {wall:.2f} s of computing are more than --compute gives ({len(told)} ranks on {cores} "
                "cores); give more, as by --compute scaled:X"
            )
        if not self._real or len(told) <= cores or wall <= 1.05 * processor:
            return ""
        return (
            f"{len(told)} ranks shared {cores} cores: computes took {wall / max(processor, 1e-9):.1f} times their "
            "processor time; --compute scaled:X replaces it"
        )

    def kill(self, rank: int) -> None:
        """Kill the process of ``rank`` at once, like a failure of its machine."""
        self._process.send({"team": self._team, "kill": rank})

    def stop(self) -> None:
        """Let all ranks end: with status 0 where the script has ended, with 1 elsewhere, by force after a second."""
        self._stopping = True
        self._process.send({"team": self._team, "stop": True})

    def close(self) -> None:
        self._process.close()

    def __enter__(self) -> ScriptRanks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
