"""The Program: the operations of each rank of a job in one step, as a graph.

Each rank has a list of operations (compute for t, collective over a group, send, receive). An operation starts when all
operations it depends on (``deps``, ids on the same rank) are done; compute operations of a rank run one after another
in list order, and so do the communication operations of one group. Sizes and times are those of the real system; the
scale is applied when the program is run or predicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Discriminator

from railyard.errors import ConfigError
from workloads.schedule import CollectiveKind, Schedule

Dimension = Literal["tp", "cp", "ep", "dp", "edp", "pp", "world"]
"""``edp``: data parallelism of experts, where it needs rings other than those of ``dp``."""
Domain = Literal["scale-out", "scale-up", "front-end"]


@dataclass(frozen=True)
class Group:
    """Ranks that communicate, in ring order. A pipeline pair is a group of two in dimension ``pp``.

    ``stage`` is the pipeline stage of a group inside one stage (dp), or the upstream stage of a pair
    (pp: this stage and the next). ``lanes`` fixes the ports of a pair (first member's, second member's); None leaves
    the choice to the policy. ``parent`` names the group whose collective uses this pair as one circuit of a round.
    ``turn`` is the number of the request that a policy is asked about, from 0 (in a program always 0).
    """

    name: str
    dimension: Dimension
    members: tuple[int, ...]
    domain: Domain = "scale-out"
    stage: int = 0
    lanes: tuple[int, int] | None = None
    parent: str = ""
    turn: int = field(default=0, compare=False)


@dataclass(frozen=True)
class OpenLoop:
    """Requests that come whether or not the job keeps up: step k answers the one of ``at_s[k]``.

    Times are seconds after the first step of the job's first incarnation. Nobody waits longer than ``patience_s`` for
    an answer.
    """

    at_s: tuple[float, ...]
    patience_s: float

    def first_wanted(self, step: int, now_s: float) -> int:
        """The first request from ``step`` on whose answer somebody waits for at ``now_s``, or the number of all."""
        return next((k for k in range(step, len(self.at_s)) if self.at_s[k] + self.patience_s > now_s), len(self.at_s))


@dataclass(frozen=True)
class Compute:
    """Occupy the accelerator of this rank for ``seconds``, and in step k for ``late[k]`` more.

    ``late`` models a straggler; it is repeated when there are more steps. With ``arrivals`` it is the first operation
    of a step, which begins when its request has come.
    """

    id: int
    name: str
    seconds: float
    deps: tuple[int, ...] = ()
    late: tuple[float, ...] = ()
    arrivals: OpenLoop | None = None
    type: Literal["compute"] = field(default="compute", kw_only=True)

    def seconds_in(self, step: int) -> float:
        return self.seconds + (self.late[step % len(self.late)] if self.late else 0.0)


@dataclass(frozen=True)
class Collective:
    """One collective over ``group``.

    ``bytes`` as in nccl-tests: the buffer of an all-reduce, reduce or broadcast, the gathered output of an all-gather
    or gather, the input (per rank) of a reduce-scatter, scatter or all-to-all. ``algorithm`` is a schedule of the
    program, or a name of ``workloads.collectives.catalog``; empty leaves the choice to the catalog.
    """

    id: int
    name: str
    kind: CollectiveKind
    group: str
    bytes: int
    deps: tuple[int, ...] = ()
    algorithm: str = ""
    type: Literal["collective"] = field(default="collective", kw_only=True)


@dataclass(frozen=True)
class _PairOperation:
    """One end of a message of ``bytes`` between this rank and ``peer``."""

    id: int
    name: str
    group: str
    peer: int
    bytes: int
    deps: tuple[int, ...] = ()


@dataclass(frozen=True)
class Send(_PairOperation):
    """Send ``bytes`` to the other member of the pair ``group``."""

    type: Literal["send"] = field(default="send", kw_only=True)


@dataclass(frozen=True)
class Recv(_PairOperation):
    """Receive ``bytes`` from the other member of the pair ``group``."""

    type: Literal["recv"] = field(default="recv", kw_only=True)


Operation = Compute | Collective | Send | Recv
Communication = Collective | Send | Recv

MOST_RANKS = 4096
MOST_OPERATIONS = 200_000
"""Largest program, in operations of all ranks together: its check takes a second, and no machine emulates it."""

MessageName = tuple[str, str, int]
"""(group, stream in the group, number in the stream): one send with its receive, or one collective."""


def check_size(ranks: int, operations: int, key: str, source: str | None = None) -> None:
    """Raise ``ConfigError`` for a program of more ``ranks``, or ``operations`` of all of them, than are built.

    To be called before the program is built, also with a part of what it will have.
    """
    if ranks > MOST_RANKS:
        raise ConfigError(f"{ranks} ranks are too many for a program; at most {MOST_RANKS}", key=key, source=source)
    if operations > MOST_OPERATIONS:
        raise ConfigError(
            f"{operations} or more operations of {ranks} ranks are too many for a program; at most {MOST_OPERATIONS}",
            key=key,
            source=source,
        )


@dataclass(frozen=True)
class Program:
    """One step of a job, for every rank; a run repeats it ``steps`` times.

    ``operations[rank]`` is in program order: ids are the positions 0, 1, 2, ... in that list. ``schedules`` are
    algorithms of the program itself, by the name in ``Collective.algorithm``. ``eager``: sends do not wait for their
    receive, the receiver keeps unexpected messages (the buffered sends that traces rely on). ``repeats``: how often the
    rounds of a group's collectives follow one another in the job that the program stands for (for the model alone).
    ``stripes``: weights of the parts that every send is cut into, one for each lane of ``choose_path`` (empty: one
    part).
    """

    name: str
    operations: tuple[tuple[Annotated[Operation, Discriminator("type")], ...], ...]
    groups: dict[str, Group] = field(default_factory=dict)
    schedules: dict[str, Schedule] = field(default_factory=dict)
    eager: bool = False
    repeats: dict[str, float] = field(default_factory=dict)
    stripes: tuple[int, ...] = ()

    @property
    def ranks_at_work(self) -> int:
        return len({rank for group in self.groups.values() for rank in group.members})

    @property
    def ranks(self) -> int:
        return len(self.operations)

    def communications(self, rank: int) -> Iterator[Communication]:
        return (op for op in self.operations[rank] if not isinstance(op, Compute))

    def messages(self, rank: int) -> Iterator[tuple[MessageName, Communication]]:
        """``communications(rank)``, each with the name that it has on all ranks that take part in it."""
        count: Counter[tuple[str, str]] = Counter()
        for op in self.communications(rank):
            if isinstance(op, Collective):
                stream = "collective"
            else:
                stream = f"{rank}>{op.peer}" if isinstance(op, Send) else f"{op.peer}>{rank}"
            yield (op.group, stream, count[op.group, stream]), op
            count[op.group, stream] += 1
