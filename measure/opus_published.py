"""Numbers that Opus gives, with source, date and kind: steps of its jobs, prices and power of parts, its headlines.

They stand in ``opus_published.yaml`` beside this module, which explains their keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).with_suffix(".yaml")
_WHOSE = {"paper": "paper", "results": "authors' files"}


@dataclass(frozen=True)
class Source:
    """A text, or a set of files, with numbers; ``reference`` names it and its date."""

    system: str
    given_by: str
    reference: str


@dataclass(frozen=True)
class Published:
    """One quantity: ``values`` by what ``by`` says, or a single one; ``where`` is its place in the source."""

    key: str
    source: Source
    quantity: str
    values: Mapping[Any, float]
    unit: str
    where: str
    kind: str
    first_hand: bool
    by: str = ""
    note: str = ""

    @property
    def value(self) -> float:
        """The number of a quantity that has one."""
        (only,) = self.values.values()
        return only

    @property
    def label(self) -> str:
        """What stands beside the number: whose it is, and its kind."""
        return f"{_WHOSE[self.source.given_by]}, {self.kind}"


@cache
def _read() -> dict[str, Published]:
    data = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    sources = {name: Source(**given) for name, given in data["sources"].items()}
    return {
        key: Published(
            key, sources[given.pop("source")], values=given.pop("values", None) or {"": given.pop("value")}, **given
        )
        for key, given in data["numbers"].items()
    }


def published(key: str) -> Published:
    """The quantity ``key`` of the table; ``KeyError`` if it is not there."""
    return _read()[key]


def all_published() -> list[Published]:
    """Every quantity of the table."""
    return list(_read().values())
