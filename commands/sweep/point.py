"""A point of a sweep: one experiment file and one repeat, named by its content. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any

from railyard.validation import Name, Whole, matching

Digits = Annotated[str, matching("[0-9a-f]{12}", "12 digits of a hash")]
"""The name of a point, and of a comparison."""
EXPERIMENT_FILE, RESULTS = "experiment.yaml", "results"


@dataclass(frozen=True)
class SweepPoint:
    """What one subprocess measures or predicts: the ``values`` of an experiment file, nested as in it.

    ``name`` says what the point is (``content_hash``), ``comparison`` names the points that belong on one machine, one
    after another. ``swept`` has the value of each swept key (dotted), ``repeat`` counts from 0. ``predict``: the model
    alone.
    """

    name: Digits
    experiment: Name
    values: Mapping[str, Any]
    repeat: Whole
    comparison: Digits
    swept: Mapping[str, Any]
    predict: bool = False

    @property
    def file(self) -> dict[str, Any]:
        """The content of its experiment file."""
        return {"experiment": self.experiment, **self.values}

    def command(self, folder: Path, attempt: int = 1) -> list[str]:
        """The command line that measures the point, whose folder is ``folder``, with its results in an attempt's."""
        verb = "predict" if self.predict else "run"
        out = attempt_folder(folder, attempt) / RESULTS
        return ["railyard", verb, str(folder / EXPERIMENT_FILE), "--out", str(out), "--no-figures"]

    def title(self) -> str:
        """The values of its swept keys and its repeat, for people."""
        words = [f"{key} {in_words(value)}" for key, value in self.swept.items()]
        return ", ".join([*words, f"repeat {self.repeat + 1}"])


def attempt_folder(folder: Path, attempt: int) -> Path:
    """The folder of an attempt (from 1) of the point whose folder is ``folder``."""
    return folder / f"attempt-{attempt}"


def in_words(value: Any) -> str:
    """A swept value as a word: a list of one as what is in it, a longer one with commas."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(in_words, value))
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def content_hash(experiment: str, settings: Mapping[str, Any], repeat: int) -> str:
    """SHA-256, in hexadecimal digits, of the settings of a point, fully resolved, and its repeat.

    It depends neither on the order of keys nor on the machine.
    """
    content = {"experiment": experiment, "settings": settings, "repeat": repeat}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def short(digest: str) -> str:
    """The name that a hash gives: its first 12 digits."""
    return digest[:12]


def without(settings: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """``settings`` without the (dotted) ``keys``."""
    found = dict(settings)
    for key in keys:
        first, _, rest = key.partition(".")
        if rest and isinstance(found.get(first), Mapping):
            found[first] = without(found[first], [rest])
        elif not rest:
            found.pop(first, None)
    return found


def in_order(points: Sequence[SweepPoint], seed: int) -> list[SweepPoint]:
    """The order in which points are run: repeat by repeat, comparisons in an order drawn from the seed.

    The points of a comparison stand after one another, in an order drawn for each, so that a drift of the machine does
    not hit the same one each time.
    """
    groups: dict[tuple[int, str], list[SweepPoint]] = {}
    for point in points:
        groups.setdefault((point.repeat, point.comparison), []).append(point)

    def drawn(*of: object) -> float:
        return Random(" ".join(map(str, (seed, *of)))).random()

    ordered = sorted(groups, key=lambda group: (group[0], drawn(*group)))
    return [point for group in ordered for point in sorted(groups[group], key=lambda each: drawn(each.name))]
