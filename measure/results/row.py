"""Rows of a results folder: one dataclass an experiment, written as JSON and CSV by the types of its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict

from measure.live.delivery import Delivery
from measure.metrics.checks import Check, Verdict
from measure.metrics.timed_acts import TIMETABLE
from railyard.scale import Scale
from railyard.verdict import OTHERS, STEAL

Row = Mapping[str, Any]
"""A row as read from ``summary.json``."""


@dataclass(kw_only=True)
class ResultRow:
    """The fields that the rows of every experiment have. Times are real seconds, except in fields named ``..wall..``.

    A field's description is the text after its type: ``steps: Annotated[int, "measured steps"]``. Text, numbers and
    truth values are columns of ``summary.csv``; lists, tables and further records are in ``summary.json`` only.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=False)
    """How rows are checked that were written before (``measure.results.foreign``)."""

    experiment: Annotated[str, "name of the experiment"] = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(kw_only=True)
class MeasuredRow(ResultRow):
    """A row of an experiment with packets: seed, scale and verdict. ``faithful`` None: a prediction without a run.

    ``main`` are the numbers that the point was measured for; ``summary.csv`` has their intervals. ``given`` are numbers
    that may be empty and are not measured. ``faults`` are numbers of what must not happen, of which the most of all
    repeats counts, and ``outcomes`` are texts that a result may differ in, each with the text that says why.
    """

    main: ClassVar[tuple[str, ...]] = ()
    given: ClassVar[frozenset[str]] = frozenset({"point"})
    faults: ClassVar[frozenset[str]] = frozenset({"misdelivered", "wrong"})
    outcomes: ClassVar[Mapping[str, str]] = {}

    seed: Annotated[int, "seed of payloads and of all that is drawn"] = 1
    rate_scale: Annotated[float, "emulated / real link rate"] = 1.0
    time_scale: Annotated[float, "emulated seconds per real second"] = 1.0
    faithful: Annotated[bool | None, "whether every check of the verdict was kept; empty for a prediction"] = None
    verdict: Annotated[str, "the verdict in words, with the failed checks"] = "not measured"
    computed: Annotated[bool, "whether the row was computed without packets, so that it has no verdict"] = False
    checks: Annotated[
        list[Check],
        "checks of the verdict, with value and limit: all of one repeat, of others those that failed",
    ] = field(default_factory=list)

    steal_share: Annotated[float | None, "share of the processors' time that other guests of the hardware took"] = None
    other_cores: Annotated[float | None, "processors that processes kept busy which are not the run's, mean"] = None

    repeats: Annotated[int, "measurements of which it is the median; those that something disturbed do not count"] = 1
    attempts: Annotated[int, "measurements that were made for the row, those that something disturbed included"] = 1
    samples: Annotated[
        dict[str, list[float | None]], "value of each measured number in each repeat; empty for one measurement"
    ] = field(default_factory=dict)

    point: Annotated[int | None, "number of the point in points; of repeats, the one that the row shows"] = None
    misdelivered: Annotated[int | None, "packets that a host received for another host"] = None
    sent_bytes: Annotated[int | None, "bytes that the rail ports sent, on the emulated wire"] = None
    received_bytes: Annotated[int | None, "bytes that the rail ports received, on the emulated wire"] = None
    lost_packets: Annotated[
        int | None, "packets that a rail port sent and none received; empty on several machines"
    ] = None

    @property
    def disturbed(self) -> bool:
        """Whether a check of the machine failed, so that the numbers do not count, whatever they are."""
        return any(check.cause and not check.ok for check in self.checks)

    def count(self, delivered: Delivery | None) -> None:
        """Set the fields of the rails' counters; they stay empty where nothing was counted."""
        if delivered is not None:
            self.misdelivered, self.lost_packets = delivered.misdelivered, delivered.lost_packets
            self.sent_bytes, self.received_bytes = delivered.sent_bytes, delivered.received_bytes

    def judge(self, verdict: Verdict) -> None:
        self.faithful, self.verdict, self.checks = verdict.faithful, str(verdict), list(verdict.checks)
        self.steal_share, self.other_cores = verdict.worst(STEAL), verdict.worst(OTHERS)
        if any(check.name == TIMETABLE for check in verdict.checks):
            for each in described(type(self)):  # the model does not know what a timetable does
                if each.name.startswith("predicted") and not each.only(int):
                    setattr(self, each.name, each.default())

    def at(self, scale: Scale, seed: int) -> None:
        self.rate_scale, self.time_scale, self.seed = scale.rate, scale.time, seed


@dataclass(frozen=True)
class Described:
    """A field of a type of rows; ``types`` are those of its value, and ``optional`` says whether it may be empty."""

    name: str
    types: tuple[Any, ...]
    optional: bool
    text: str
    default: Callable[[], Any]

    def only(self, *types: Any) -> bool:
        """Whether its values are of these types alone; a literal is text."""
        return all((str if get_origin(each) is Literal else each) in types for each in self.types)

    @property
    def column(self) -> bool:
        """Whether it is a column of ``summary.csv``: text, numbers and truth values are."""
        return self.only(str, int, float, bool)

    @property
    def type(self) -> str:
        """Its type in words."""
        return " or ".join(map(_type_name, self.types)) + (" or empty" if self.optional else "")


_DESCRIBED: dict[type[ResultRow], list[Described]] = {}
"""Fields by type of row, whose types take time to find."""


def described(kind: type[ResultRow]) -> Sequence[Described]:
    """The fields of a type of rows, in order."""
    if kind in _DESCRIBED:
        return _DESCRIBED[kind]
    hints, found = get_type_hints(kind, include_extras=True), list[Described]()
    for each in fields(kind):
        hint, text = hints[each.name], ""
        if get_origin(hint) is Annotated:
            hint, text = get_args(hint)[:2]
        types = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        value = None if each.default is MISSING else each.default
        default = (lambda value=value: value) if each.default_factory is MISSING else each.default_factory
        some = tuple(each for each in types if each is not NoneType)
        found.append(Described(each.name, some, len(some) < len(types), text, default))
    _DESCRIBED[kind] = found
    return found


def _type_name(hint: Any) -> str:
    names = {str: "text", Literal: "text", int: "integer", float: "number", bool: "true or false"}
    kind = get_origin(hint) or hint
    return names.get(kind, {list: "list", tuple: "list", dict: "table", Mapping: "table"}.get(kind, "record"))


def kind_of(row: Row, kinds: Sequence[type[ResultRow]]) -> type[ResultRow] | None:
    """The type of a row as read from ``summary.json``: the one whose fields are most like its own; None of none."""
    return min(kinds, key=lambda kind: len({each.name for each in described(kind)} ^ row.keys()), default=None)


def defaults_of(kind: type[ResultRow]) -> dict[str, Any]:
    """Every field of a type of rows with its default, None where it has none."""
    return {each.name: each.default() for each in described(kind)}


def columns(kind: type[ResultRow]) -> list[str]:
    """The columns of ``summary.csv`` for a type of rows."""
    intervals = [f"{name}_{end}" for name in getattr(kind, "main", ()) for end in ("low", "high")]
    return [*(each.name for each in described(kind) if each.column), *intervals]
