"""What a leaf server or the root server decides to do: answers, transfers, records of the journal, events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.propius.data.data_requests import Stage, SumId, UpdateId
from experiments.propius.data.update import Numbers
from experiments.propius.data.wire import Payload


@dataclass(frozen=True)
class Answer:
    """Answer the request ``token`` with these fields and this payload."""

    token: Any
    fields: Mapping[str, Any]
    payload: Payload = b""


@dataclass(frozen=True)
class Refuse:
    """Refuse the request ``token``."""

    token: Any
    why: str


@dataclass(frozen=True)
class Fetch:
    """Ask the root for the model of a round; then ``LeafServer.fetched`` with the number of this fetch."""

    number: int
    job: int
    round: int


@dataclass(frozen=True)
class Flush:
    """Send a sum to the root; then ``LeafServer.flushed``. ``total`` None: the numbers are not added in this run."""

    sum_id: SumId
    job: int
    stage: Stage
    clients: tuple[int, ...]
    total: Numbers | None = field(compare=False)


@dataclass(frozen=True)
class Note:
    """An event of the run: ``began`` None for a moment, else the start of an interval that ends now."""

    kind: str
    fields: Mapping[str, Any]
    began: float | None = None


@dataclass(frozen=True)
class Started:
    """Record: an incarnation of the leaf server begins."""

    incarnation: int


@dataclass(frozen=True)
class Added:
    """Record: an update is in the sum of its job. ``payload`` is empty if the numbers are not added in this run."""

    update: UpdateId
    payload: Payload = field(default=b"", compare=False)


@dataclass(frozen=True)
class Sealed:
    """Record: the sum of ``job`` has got an identity and takes no more updates."""

    sum_id: SumId
    job: int


@dataclass(frozen=True)
class Closed:
    """Record: the root has counted or refused the sum, so its updates are needed no more."""

    sum_id: SumId


Record = Started | Added | Sealed | Closed
"""What a leaf server writes to its journal before the action that comes after it."""
ServerAction = Answer | Refuse | Fetch | Flush | Note | Record
