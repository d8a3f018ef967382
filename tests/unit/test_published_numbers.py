"""No code has a number of a paper of its own: what is printed, drawn or compared comes from ``measure/published.yaml``.

There is no list of exceptions. Found are text for people that says *paper* or *published* (words that only
``measure.published`` makes) or has a number beside the name of a system, and numbers that only the table can be the
origin of.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
from checkout import ROOT

from experiments.registry import ENTRIES, find
from measure.published import all_published
from measure.results.row import described

ABOVE = ("measure", "experiments", "commands", "scripts")


TABLE = ROOT / "measure" / "published.py"
"""The module that makes the words."""

WORDS = re.compile(r"\b(papers?|published|publication)\b", re.IGNORECASE)
SYSTEMS = sorted({each.source.system for each in all_published()} - {"Railyard"})


OF_A_COLUMN = re.compile(r"(paper|published|authors|derived)_(?!kind$)")
BESIDE_A_SYSTEM = re.compile(rf"\b({'|'.join(map(re.escape, SYSTEMS))})\b")
NUMBER = re.compile(r"(?<![\w.,/-])\d[\d,]*(?:\.\d+)?(?![\w/-])")


def digits(value: float) -> str:
    """The significant digits of a number, the same for 10.178 s and 10178 ms."""
    return f"{value:.9e}".partition("e")[0].replace(".", "").strip("0")


def distinctive(value: float) -> bool:
    """Whether nobody writes this number by chance: a fraction of three digits or a whole number of four, not round.

    Multiples of a quarter and powers of two count as round.
    """
    if float(value).is_integer():
        return len(digits(value)) >= 4 and int(value).bit_count() > 1
    return len(digits(value)) >= 3 and not (value * 4).is_integer()


DISTINCTIVE = {float(value) for each in all_published() for value in each.values.values() if distinctive(value)}
DIGITS = {digits(value) for value in DISTINCTIVE if len(digits(value)) >= 4}


def of_the_table(value: float) -> bool:
    """Whether a number of the code is one of the table, in any unit if it has four digits."""
    return value in DISTINCTIVE or digits(value) in DIGITS


def offences(tree: ast.Module) -> Iterator[str]:
    """The offences in a module, each with its line."""
    docstrings = set(_docstrings(tree))
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.JoinedStr):
            parts = (part.value for part in node.values if isinstance(part, ast.Constant))
            found += _in_text(" \0 ".join(part for part in parts if isinstance(part, str)))
        elif isinstance(node, ast.Constant) and id(node) not in docstrings:
            found += _in_text(node.value) if isinstance(node.value, str) else _in_number(node)
        yield from (f"{node.lineno}: {each}" for each in found)  # type: ignore[attr-defined]


def _docstrings(tree: ast.Module) -> Iterator[int]:
    """Strings that are statements: docstrings of modules, classes, functions and of the constant before them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield id(node.value)
        if isinstance(node, ast.JoinedStr):  # looked at as a whole
            yield from (id(part) for part in node.values if isinstance(part, ast.Constant))


def _in_number(node: ast.Constant) -> Iterator[str]:
    if _is_number(node) and of_the_table(float(node.value)):  # type: ignore[arg-type]
        yield f"{node.value!r} is a number of the table; take it from measure.published"


def _in_text(text: str) -> Iterator[str]:
    if found := WORDS.search(text):
        yield f"text says {found[0]!r}; use the label of the number in measure.published"
    numbers = [float(each.replace(",", "")) for each in NUMBER.findall(text)]
    if any(map(of_the_table, numbers)):
        yield f"text has a number of the table: {text!r}"
    if numbers and BESIDE_A_SYSTEM.search(text):
        yield f"text has a number beside the name of a system: {text!r}"


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool)


def files(*rooms: str) -> list[Path]:
    return [file for room in rooms for file in sorted((ROOT / room).rglob("*.py")) if file != TABLE]


@pytest.mark.parametrize("room", ABOVE)
def test_numbers_from_elsewhere_come_from_the_table(room: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{offence}"
        for file in files(room)
        for offence in offences(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert found == []


COLUMNS = [
    (kind.__name__, each.name, each.text)
    for entry in ENTRIES
    for kind in find(entry.name).rows
    for each in described(kind)
]


@pytest.mark.parametrize(("kind", "name", "text"), [each for each in COLUMNS if OF_A_COLUMN.match(each[1])])
def test_a_column_of_a_number_from_elsewhere_names_its_key(kind: str, name: str, text: str) -> None:
    found = re.search(r"\(([\w*-]+)\)$", text)
    assert found, f"{kind}.{name}: end its text with a key of the table in brackets"
    named = [each for each in all_published() if fnmatch(each.key, found[1])]
    assert named, f"{found[1]} is no key of the table"
    wanted = {"derived": {"derived"}, "paper": {"measured", "simulated", "computed"}}.get(name.partition("_")[0])
    assert wanted is None or {each.kind for each in named} <= wanted
    assert not name.startswith("paper") or {each.source.given_by for each in named} == {"paper"}
