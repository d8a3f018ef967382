"""The file of a sweep, and its points: which of which experiment, how often, and which of them are compared. Pure.

Every point is checked by the settings of its experiment before anything runs.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from experiments.options import field_options, merged
from experiments.registry import find
from experiments.settings import MOST_REPEATS, MOST_SEED, validated
from railyard.errors import ConfigError, in_file
from railyard.plugin import absolute_name
from railyard.validation import Name, Section, Whole, matching, shown
from railyard.yaml_file import read_mapping

if TYPE_CHECKING:
    from experiments.experiment import Experiment

Digits = Annotated[str, matching("[0-9a-f]{12}", "12 digits of a hash")]
"""The name of a point, and of a comparison."""
EXPERIMENT_FILE, RESULTS = "experiment.yaml", "results"


@dataclass(frozen=True)
class SweepPoint:
    """A point that one subprocess measures or predicts: the ``values`` of an experiment file, nested as in it.

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
        return {"experiment": self.experiment, **self.values}

    def command(self, folder: Path, attempt: int = 1) -> list[str]:
        """The command line that measures the point, whose folder is ``folder``, with its results in an attempt's."""
        verb = "predict" if self.predict else "run"
        out = attempt_folder(folder, attempt) / RESULTS
        return ["railyard", verb, str(folder / EXPERIMENT_FILE), "--out", str(out), "--no-figures"]

    def title(self) -> str:
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
    kept = dict(settings)
    for key in keys:
        first, _, rest = key.partition(".")
        if rest and isinstance(kept.get(first), Mapping):
            kept[first] = without(kept[first], [rest])
        elif not rest:
            kept.pop(first, None)
    return kept


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


# ---- the file --------------------------------------------------------------------------------------------------------


MOST_SWEPT = 100_000
"""Points of a sweep, each repeat counted."""
_CHECKED = 50
"""Points that are checked as far as possible without root (``Experiment.check``), which may take a second each."""
_NAME = "a name of up to 64 letters, digits, '_', '.' and '-' that begins with a letter or a digit"
Values = dict[str, Any]


class RandomKey(Section):
    """A key whose values are drawn from ``low`` to ``high``: evenly, or with ``log`` evenly in their logarithm."""

    low: float = Field(ge=-1e15, le=1e15)
    high: float = Field(ge=-1e15, le=1e15)
    log: bool = False
    integer: bool = False

    def holds_values(self) -> bool:
        """Whether there is a value between the ends, above 0 with ``log``."""
        low, high = (math.ceil(self.low), math.floor(self.high)) if self.integer else (self.low, self.high)
        return low <= high and (low > 0 or not self.log)

    def draw(self, random: Random) -> float | int:
        """One value, of six digits if it is no whole number."""
        if self.integer:
            ends = math.ceil(self.low), math.floor(self.high)
            if not self.log:
                return random.randint(*ends)
            return min(ends[1], max(ends[0], round(math.exp(random.uniform(*map(math.log, ends))))))
        if self.log:
            return float(f"{math.exp(random.uniform(math.log(self.low), math.log(self.high))):.6g}")
        return float(f"{random.uniform(self.low, self.high):.6g}")


class RandomSection(Section):
    """Points whose swept keys are drawn; the same seed draws the same points."""

    count: int = Field(ge=1, le=MOST_SWEPT)
    seed: int = Field(default=1, ge=0, le=MOST_SEED)
    over: dict[str, Any] = Field(min_length=1)


class SweepFile(Section):
    """The keys of a sweep file: points of a ``list``, or drawn (``random``), each with all values of ``grid``."""

    sweep: Annotated[str, matching("[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", _NAME)] = "sweep"
    experiment: str
    base: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, tuple[Any, ...]] | None = None
    list: tuple[dict[str, Any], ...] | None = None
    random: RandomSection | None = None
    repeats: int = Field(default=1, ge=1, le=MOST_REPEATS)
    together: tuple[str, ...] = ()
    tries: int = Field(default=3, ge=1, le=MOST_REPEATS)
    predict: bool = False


@dataclass(frozen=True)
class SweepSpec:
    """A sweep as resolved: its file, and all of its points; repeats of the same values stand beside each other."""

    file: SweepFile
    points: Sequence[SweepPoint]

    @property
    def swept(self) -> tuple[str, ...]:
        """The swept keys, dotted, in the order of the file."""
        return tuple(dict.fromkeys(key for point in self.points for key in point.swept))

    @property
    def seed(self) -> int:
        seed = self.file.random.seed if self.file.random else self.file.base.get("seed", 1)
        return seed if isinstance(seed, int) else 1


def read_spec(path: Path, *, predict: bool = False) -> SweepSpec:
    """The sweep that a file describes, with ``predict`` of the model alone.

    ``ConfigError`` names the file and the key for anything wrong in it, and for a point that its experiment refuses.
    """
    source = str(path)
    data = read_mapping(path, "a sweep file", "experiment, base, grid")
    file = validated(SweepFile, data, source)
    try:
        kind = find(file.experiment)
    except ConfigError as error:
        raise ConfigError(error.message, key="experiment", source=source) from None
    file = file.model_copy(
        update={
            "experiment": absolute_name(file.experiment) if ":" in file.experiment else kind.name,
            "predict": file.predict or predict,
        }
    )
    _check_model(kind, file, source)
    return SweepSpec(file, _points(kind, file, path))


def _check_model(kind: type[Experiment[Any]], file: SweepFile, source: str) -> None:
    from experiments.experiment import Experiment

    if file.predict and kind.predict is Experiment.predict:
        raise ConfigError(f"{kind.name} has no model that predicts it; leave predict out", key="predict", source=source)


# ---- from the file to points ---------------------------------------------------------------------------------------


def _points(kind: type[Experiment[Any]], file: SweepFile, path: Path) -> list[SweepPoint]:
    source, points = str(path), dict[str, SweepPoint]()
    digests, checked = dict[str, str](), set[tuple[str, str]]()
    base = nested(file.base, source)
    lists = {option.key for option in field_options(kind.Settings) if option.kind == "list"}
    for number, swept in enumerate(_assignments(file, base, source)):
        values = _absolute(merged(base, nested(_listed(swept, lists), source)), path.parent)
        if "repeats" in values:
            raise ConfigError("is a key of the sweep itself; give it beside base", key="repeats", source=source)
        for repeat in range(file.repeats):
            point, digest, settings = _point(kind, file, swept, values, repeat, source)
            if digests.setdefault(point.name, digest) != digest:
                raise ConfigError(f"two points have the name {point.name}; change a value of one", source=source)
            points.setdefault(point.name, point)
            new = {(key, repr(value)) for key, value in swept.items()} - checked
            if repeat == 0 and len(checked) < _CHECKED and (new or not number):
                checked |= new
                _check(kind(settings), source, predict=file.predict)
    return list(points.values())


def _listed(swept: Values, lists: Collection[str]) -> Values:
    """``swept`` with lists of one where a key takes a list: in ``delays_ms: [0, 50]`` each number is a point."""
    one = {key for key, value in swept.items() if key in lists and isinstance(value, (str, int, float))}
    return {key: [value] if key in one else value for key, value in swept.items()}


def _point(
    kind: type[Experiment[Any]], file: SweepFile, swept: Values, values: Values, repeat: int, source: str
) -> tuple[SweepPoint, str, Any]:
    """The point of a repeat, the hash of its content, and its settings."""
    fields = kind.Settings.model_fields
    values = values | ({"repeats": 1} if "repeats" in fields else {})
    settings = validated(kind.Settings, values, source)
    if "seed" in fields and repeat and "seed" not in swept:
        values["seed"] = settings.model_dump()["seed"] + repeat
        settings = validated(kind.Settings, values, source)
    plain = settings.model_dump(mode="json")
    digest = content_hash(file.experiment, plain, repeat)
    alike = content_hash(file.experiment, without(plain, file.together), repeat) if file.together else digest
    return (
        SweepPoint(short(digest), file.experiment, values, repeat, short(alike), swept, file.predict),
        digest,
        settings,
    )


def _check(experiment: Experiment[Any], source: str, *, predict: bool) -> None:
    with in_file(source):
        experiment.check()
        if not predict:
            experiment.check_run()


def _assignments(file: SweepFile, base: Values, source: str) -> Iterator[Values]:
    """The values of the swept keys of each point, without repeats; ``base`` are those of all points, nested."""
    if file.list is not None and file.random is not None:
        raise ConfigError("cannot stand beside list; give one of them", key="random", source=source)
    if file.list == () or {} in (file.list or ()):
        raise ConfigError("must name at least one key of each point", key="list", source=source)
    grid = file.grid or {}
    for key, values in grid.items():
        if not values:
            raise ConfigError("must name at least one", key=f"grid.{key}", source=source)
    named = {key for point in file.list or () for key in point} | {*(file.random.over if file.random else ())}
    twice = sorted(named & grid.keys())
    if twice:
        raise ConfigError("is given twice; give it once", key=f"grid.{twice[0]}", source=source)
    for place, keys in (("grid", grid), ("random.over", file.random.over if file.random else ())):
        for key in keys:
            if _has(base, key):
                raise ConfigError("is in base too, from which no point takes it; give it once", key=f"{place}.{key}",
                                  source=source)  # fmt: skip
    _check_together(file, named | grid.keys(), source)
    given = file.random.count if file.random else len(file.list or ({},))
    count = given * math.prod(map(len, grid.values())) * file.repeats
    if count > MOST_SWEPT:
        raise ConfigError(f"the sweep has {count:,} points; make at most {MOST_SWEPT:,}", source=source)
    for point in _drawn(file.random, source) if file.random else file.list or ({},):
        for chosen in itertools.product(*grid.values()):
            yield point | dict(zip(grid, chosen, strict=True))


def _has(values: Values, key: str) -> bool:
    """Whether nested ``values`` have a value of a dotted key; a section is none, as those of its keys are merged."""
    value: Any = values
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value is not None and not isinstance(value, Mapping)


def _check_together(file: SweepFile, swept: Collection[str], source: str) -> None:
    for key in file.together:
        if key not in swept:
            raise ConfigError(f"{shown(key)} is not swept; name swept keys", key="together", source=source)


def _drawn(section: RandomSection, source: str) -> Iterator[Values]:
    """Points whose values are drawn key by key in the order of the alphabet, so that the order of keys is free."""
    over: dict[str, RandomKey | tuple[Any, ...]] = {}
    for key in sorted(section.over):
        given, place = section.over[key], f"random.over.{key}"
        if isinstance(given, list):
            if not given:
                raise ConfigError("must name at least one", key=place, source=source)
            over[key] = tuple(given)
            continue
        if not isinstance(given, dict):
            raise ConfigError(f"must be a list of choices, or low and high, not {shown(given)}", key=place,
                              source=source)  # fmt: skip
        try:
            drawn = validated(RandomKey, given, source)
        except ConfigError as error:
            raise ConfigError(error.message, key=f"{place}.{error.key}", source=source) from None
        if not drawn.holds_values():
            raise ConfigError("low must be at most high, and above 0 with log", key=place, source=source)
        over[key] = drawn
    random = Random(f"sweep {section.seed}")
    for _ in range(section.count):
        yield {key: how.draw(random) if isinstance(how, RandomKey) else random.choice(how) for key, how in over.items()}


def nested(values: Mapping[str, Any], source: str | None = None) -> Values:
    """``values`` with each dotted key (``fabric.mtu``) as a key of its section, as in an experiment file."""
    found: Values = {}
    for key, value in values.items():
        for part in reversed(key.split(".")):
            value = {part: value}
        if merged(found, value) != merged(value, found):
            raise ConfigError("is given twice; give it once", key=key, source=source)
        found = merged(found, value)
    return found


def _absolute(value: Any, folder: Path) -> Any:
    """``value`` with the names of files as whole paths: of files beside the sweep's, or in the working directory."""
    if isinstance(value, Mapping):
        return {key: _absolute(item, folder) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_absolute(item, folder) for item in value]
    if not isinstance(value, str) or not ("." in value or "/" in value) or "\0" in value:
        return value
    file, colon, rest = value.partition(":") if ".py:" in value else (value, "", "")
    for place in (folder / file, Path(file)):
        if os.path.exists(place):
            return f"{place.absolute()}{colon}{rest}"
    return value
