"""What one rank of a PyTorch script asked its network for, in order: calls, waits, ends of steps. No torch here.

Both ways to record write it: a rank that runs by itself on shapes alone, and one of real processes. One JSON object a
line, the first with the rank; so a rank that dies leaves what it had written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Discriminator, TypeAdapter

from railyard.errors import ConfigError
from railyard.reading import read_text
from workloads.schedule import CollectiveKind

CallKind = CollectiveKind | Literal["barrier", "send", "recv"]
MOST_BYTES = 256 << 20
"""Largest file of one rank's trace that is read."""


@dataclass(frozen=True)
class Work:
    """Computing of the rank since the event before: ``seconds`` of its processor where they were measured (else 0),
    ``flops`` of matrix products and attention, ``moved_bytes`` that operations on tensors read and wrote.
    """

    seconds: float = 0.0
    flops: float = 0.0
    moved_bytes: float = 0.0


@dataclass(frozen=True)
class Call:
    """A communication that the rank asked for in ``step``.

    ``ranks`` are those of its group, in the group's order, of the whole job (never one alone). ``bytes`` as in
    ``workloads.program.Collective``: gathered output of an all-gather, input of a reduce-scatter or all-to-all (the
    rank's own). ``peer`` is that of a send or receive, ``root`` that of a kind with a root (both ranks of the job).
    ``sent`` and ``received`` are the bytes to and from each member in an all-to-all, by position. ``label`` is the
    description of the group (``mesh_dp``), ``module`` the path of the module at work, ``part`` the part of a step
    (``F0``: forward of microbatch 0, ``B0``: backward, empty: not known).
    """

    step: int
    kind: CallKind
    ranks: tuple[int, ...]
    bytes: int
    dtype: str = ""
    label: str = ""
    peer: int | None = None
    root: int | None = None
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()
    module: str = ""
    part: str = ""
    work: Work = Work()
    type: Literal["call"] = field(default="call", kw_only=True)


@dataclass(frozen=True)
class Wait:
    """The rank goes on only when its call number ``call`` (from 0, over all steps) is over."""

    step: int
    call: int
    work: Work = Work()
    type: Literal["wait"] = field(default="wait", kw_only=True)


@dataclass(frozen=True)
class StepEnd:
    """The optimizer has taken ``step``; what the rank asks for from now on belongs to the next one."""

    step: int
    work: Work = Work()
    type: Literal["step"] = field(default="step", kw_only=True)


TraceEvent = Call | Wait | StepEnd
_EVENT: TypeAdapter[TraceEvent] = TypeAdapter(Annotated[TraceEvent, Discriminator("type")])


@dataclass(frozen=True)
class RankTrace:
    """The events of ``rank`` of ``world``, in order. ``notes`` are sentences about what was not followed."""

    rank: int
    world: int
    events: tuple[TraceEvent, ...]
    notes: tuple[str, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(event for event in self.events if isinstance(event, Call))

    def lines(self) -> Iterator[str]:
        yield json.dumps({"rank": self.rank, "world": self.world, "notes": self.notes})
        yield from map(line, self.events)


def line(event: TraceEvent) -> str:
    """One line of a trace file, without what is as by default and without its end."""
    told = _EVENT.dump_python(event, mode="json", exclude_defaults=True)
    return json.dumps({"type": event.type, **told}, separators=(",", ":"))


def read_trace(path: Path) -> RankTrace:
    """Read the file of one rank; ``ConfigError`` for one that is none of a trace."""
    head, *rest = read_text(path, MOST_BYTES, "the trace of a rank").splitlines() or [""]
    try:
        told = json.loads(head)
        events = tuple(_EVENT.validate_json(text) for text in rest)
        return RankTrace(told["rank"], told["world"], events, tuple(told["notes"]))
    except (ValueError, KeyError, TypeError):
        raise ConfigError("is no trace of a rank", source=str(path)) from None
