"""Follows every acknowledged update to the sum of its round, so that losses and double counts show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from railyard.timeline import Event

COUNTED = "acknowledged"
"""Outcome of an upload or of a leaf's flush that the receiver counted."""
LATE = "late"
"""Outcome of an upload or flush for a round that had ended, of which the sender was told."""


@dataclass(frozen=True)
class UpdateCounts:
    """What became of the updates of a run; all are numbers of updates.

    ``acknowledged`` uploads were confirmed to their client. Of these, ``lost`` reached no sum although their round was
    completed and no server reported them late or cleared, ``discarded`` belonged to an attempt of a round that timed
    out, and ``twice`` counts each time beyond the first that a sum held a client's update of a round. ``late`` uploads
    or parts of a leaf's sum came after their round and were reported so. ``refused`` and ``broken`` uploads were never
    acknowledged: the server declined them, or they did not arrive.
    """

    acknowledged: int
    lost: int
    twice: int
    late: int
    refused: int
    broken: int
    discarded: int


@dataclass
class _Round:
    acknowledged: list[int] = field(default_factory=list)
    flushed: list[int] = field(default_factory=list)
    reported: list[int] = field(default_factory=list)
    order: list[int] | None = None


class Updates:
    """Takes the events ``push``, ``flush``, ``cleared``, ``sum``, ``round`` and ``timeout`` in order of time.

    The clients whose updates a sum holds are those of its field ``order`` where there is one, else those of the
    flushes that the root counted, else (no leaf in the run: the root itself acknowledges) those of the acknowledged
    uploads. Where each attempt of a round has a sum of its own, its events have a field ``attempt``.
    """

    def __init__(self) -> None:
        self._rounds: dict[tuple[int, int, int], _Round] = {}
        self._completed: set[tuple[int, int]] = set()
        self._outcomes: Counter[str] = Counter()
        self._discarded = 0
        self._late_flushed = 0
        self._leaves = False

    def add(self, event: Event) -> None:
        """Take one event; those of other kinds are ignored."""
        match event.kind:
            case "push":
                self._outcomes[event["outcome"]] += 1
                if event["outcome"] == COUNTED:
                    self._round(event).acknowledged.append(event["client"])
            case "flush":
                self._flush(event)
            case "cleared":
                self._round(event).reported += event["clients"]
            case "sum" if event.get("order") is not None:
                self._round(event).order = list(_flat(event["order"]))
            case "round":
                self._completed.add((event["job"], event["round"]))
            case "timeout" if event["phase"] == "execution":
                for key, found in self._rounds.items():
                    if key[:2] == (event["job"], event["round"]):
                        self._discarded += len(found.acknowledged)
                        self._rounds[key] = _Round()

    def _round(self, event: Event) -> _Round:
        return self._rounds.setdefault((event["job"], event["round"], event.get("attempt", 0)), _Round())

    def _flush(self, event: Event) -> None:
        self._leaves = True
        found = self._round(event)
        if event["outcome"] == COUNTED:
            found.flushed += event["clients"]
        elif event["outcome"] == LATE:
            found.reported += event["clients"]
            self._late_flushed += len(event["clients"])

    def counts(self) -> UpdateCounts:
        """What became of the updates so far."""
        lost = twice = 0
        for key, found in self._rounds.items():
            if key[:2] in self._completed:
                counted = Counter(self._counted(found))
                lost += (Counter(found.acknowledged) - counted - Counter(found.reported)).total()
                twice += sum(number - 1 for number in counted.values() if number > 1)
        return UpdateCounts(
            acknowledged=self._outcomes[COUNTED],
            lost=lost,
            twice=twice,
            late=self._outcomes[LATE] + self._late_flushed,
            refused=self._outcomes["refused"],
            broken=self._outcomes["lost"],
            discarded=self._discarded,
        )

    def _counted(self, found: _Round) -> Sequence[int]:
        if found.order is not None:
            return found.order
        return found.flushed if self._leaves else found.acknowledged


def _flat(order: Iterable[int | Sequence[int]]) -> Iterable[int]:
    for part in order:
        if isinstance(part, int):
            yield part
        else:
            yield from part
