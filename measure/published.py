"""The table of every number that comes from elsewhere, with its source: papers, their authors' files, inputs of ours.

The numbers stand in ``published.yaml`` beside this module, which explains their keys. Whatever prints, draws or
compares with one of them takes it from here, and prints its ``label`` beside it: whose it is and of what kind.
``python -m measure.published`` prints the page ``docs/published.md``; a test compares it with the file.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

PAPER: Literal["paper"] = "paper"
"""The word for what a paper gives."""
TABLE = Path(__file__).with_suffix(".yaml")
Kind = Literal["measured", "simulated", "computed", "derived", "input"]
"""Measured on hardware, simulated or computed by the authors, derived by us, or an input of their setup or of ours."""
KINDS: tuple[Kind, ...] = get_args(Kind)
GivenBy = Literal["paper", "results", "code", "Railyard"]
_WHOSE: Mapping[GivenBy, str] = {
    PAPER: PAPER,
    "results": "authors' files",
    "code": "public code",
    "Railyard": "ours",
}


@dataclass(frozen=True)
class Source:
    """A text or a set of files with numbers, and what of it was read."""

    name: str
    system: str
    given_by: GivenBy
    reference: str
    read: str
    first_hand: bool


@dataclass(frozen=True)
class Published:
    """One quantity of the table: ``values`` by what ``by`` says, or a single one, or the two ends of a range.

    ``where`` is the place in the source; ``first_hand`` says whether the number was read there. ``constant`` is the
    dotted name of the same number in a room below ``measure``.
    """

    key: str
    source: Source
    quantity: str
    values: Mapping[Any, float]
    unit: str
    where: str
    kind: Kind
    first_hand: bool
    by: str = ""
    note: str = ""
    constant: str = ""

    @property
    def value(self) -> float:
        """The number of a quantity that has one."""
        (only,) = self.values.values()
        return only

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most of a quantity that has a range."""
        return self.values["least"], self.values["most"]

    def between(self, before: object, after: object) -> float:
        """The difference of two of the values, without the error of binary fractions."""
        return round(self.values[after] - self.values[before], 9)

    @property
    def label(self) -> str:
        """The words beside the number: whose it is, and its kind; ``paper`` only for what a paper gives."""
        return "derived by us" if self.kind == "derived" else f"{_WHOSE[self.source.given_by]}, {self.kind}"

    @property
    def heading(self) -> str:
        """The label in two lines, for the head of a column."""
        return self.label.replace(", ", ",\n").replace(" by us", "\nby us")

    def brief(self) -> str:
        """The values with the unit; where there are several, what they depend on."""
        return f"by {self.by}" if self.by else f"{self.shown()} {self.unit}"

    def shown(self) -> str:
        """The values in words, without the unit."""
        if set(self.values) == {"least", "most"}:
            return f"{self.bounds[0]:g} to {self.bounds[1]:g}"
        return "; ".join(f"{f'{name}: ' if self.by else ''}{_plain(value)}" for name, value in self.values.items())


@dataclass(frozen=True)
class ParameterFit:
    """A parameter of ours that was set so that numbers of the table come out (``to``: their keys), and how."""

    key: str
    parameter: str
    value: float
    unit: str
    to: tuple[str, ...]
    how: str
    constant: str = ""

    def __str__(self) -> str:
        """The calibration as a phrase: the parameter, to whose numbers it was set, and how."""
        targets = (published(key) for key in self.to)
        aims = "; ".join(f"{each.quantity}, {each.brief()} ({each.source.system}: {each.label})" for each in targets)
        return f"{self.parameter} = {self.value:g} {self.unit} to {aims}: {self.how}"


def _plain(value: float) -> str:
    """A number with all its digits: 87852, 10.178, 0.05."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Loads plain values, and refuses a key that stands twice, of which YAML would take the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """One mapping; ``ValueError`` with the line of a key that is in it already."""
        seen = set[str]()
        for key, _ in node.value:
            if key.value in seen:
                raise ValueError(f"line {key.start_mark.line + 1} has the key {key.value} again; give it once")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_table(text: str) -> dict[str, dict[str, dict[str, Any]]]:
    """The parts of a table by name; ``ValueError`` for a key that stands twice."""
    return yaml.load(text, _Loader)  # type: ignore[no-any-return]


@cache
def _read() -> tuple[dict[str, Source], dict[str, Published], dict[str, ParameterFit]]:
    data = read_table(TABLE.read_text(encoding="utf-8"))
    sources = {name: Source(name, **given) for name, given in data["sources"].items()}
    numbers = {key: _number(key, sources[given.pop("source")], given) for key, given in data["numbers"].items()}
    fits = {
        key: ParameterFit(key, **{**given, "to": tuple(given["to"])}) for key, given in data["calibrations"].items()
    }
    return sources, numbers, fits


def _number(key: str, source: Source, given: dict[str, Any]) -> Published:
    (name,) = given.keys() & {"value", "values", "range"}
    values = given.pop(name)
    if name != "values":
        values = {"": values} if name == "value" else dict(zip(("least", "most"), values, strict=True))
    return Published(key, source, values=values, **{"first_hand": source.first_hand, **given})


def published(key: str) -> Published:
    """The quantity ``key`` of the table; ``KeyError`` if it is not there."""
    return _read()[1][key]


def calibrations(keys: Iterable[str] | None = None) -> Sequence[ParameterFit]:
    """The calibrations ``keys`` of the table (None: all of them); ``KeyError`` if one is not there."""
    fits = _read()[2]
    return [fits[key] for key in (fits if keys is None else keys)]


def all_published() -> Sequence[Published]:
    return list(_read()[1].values())


_WIDTH = 120
_HEAD = """# Numbers from elsewhere

Every number of this project that was not measured or computed here, with its source. The page is made from
`measure/published.yaml` by `python -m measure.published > docs/published.md`. Tables, findings and figures take these
numbers from there by their keys, and print beside each whose it is and its kind:

- **measured** on hardware, **simulated** or **computed** (from a formula or a rule) by the authors;
- **derived** by us from other numbers; no paper prints it;
- **input** of the authors' setup, or of ours where the source is Railyard.

*First-hand*: the number was read in the source itself, and not in another text about it. Where a place is no section,
figure or table, our notes on the source do not have it more exactly."""


def markdown() -> str:
    """Text of ``docs/published.md``, as Markdown."""
    sources, numbers, fits = _read()
    lines = [_HEAD]
    for system in dict.fromkeys(each.source.system for each in numbers.values()):
        lines += ["", f"## {system}", ""]
        lines += [_item(_in_words(each)) for each in numbers.values() if each.source.system == system]
    lines += ["", "## Sources", ""]
    lines += [
        _item(f"`{name}` ({each.given_by}): {each.reference}. Read: {each.read}.") for name, each in sources.items()
    ]
    lines += [
        "",
        "## What was calibrated to what",
        "",
        "Parameters of ours that were set so that these numbers come out:",
        "",
    ]
    lines += [_item(f"{fit}.") for fit in fits.values()]
    return "\n".join(lines) + "\n"


def _in_words(each: Published) -> str:
    by = f", by {each.by}" if each.by else ""
    read = "" if each.kind == "derived" else "; first-hand" if each.first_hand else "; not read first-hand"
    note = f" ({each.note})" if each.note else ""
    unit = "" if each.unit == "-" else f" {each.unit}"
    place = f"`{each.source.name}`, {each.where}{read}{note}"
    return f"`{each.key}`: {each.quantity}{by}: **{each.shown()}**{unit}. {each.kind}; {place}."


def _item(text: str) -> str:
    """One item of a list, in lines of the length of a page."""
    return textwrap.fill(text, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


if __name__ == "__main__":
    print(markdown(), end="")
