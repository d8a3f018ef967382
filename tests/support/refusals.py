"""Tables of refusals: what is given to a reader, the key that its sentence names, and words of the sentence.

A section of a table has the name of a reader, and rows of one line: ``[input, key, words]``, without the words where
the key says enough, and with ``~`` where there is no key. ``{each: [inputs], key: key, words: words}``: several rows.
A mapping is given to the reader as keywords, a list as arguments, and anything else as the only argument. In words,
`` ... `` stands for what need not be told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from railyard.errors import ConfigError

MOST_CHARACTERS = 500
"""Most characters of a refusal: a sentence, and the values that it repeats."""

Reader = Callable[..., object]
Errors = type[Exception] | tuple[type[Exception], ...]


class Refusal(NamedTuple):
    """One input that is refused."""

    reader: Reader
    error: Errors
    given: Any
    key: str | None
    words: str


def refusals(
    table: Path, readers: Mapping[str, Reader | tuple[Reader, Errors]]
) -> Callable[[Refusal, Path, pytest.MonkeyPatch], None]:
    """The test of all rows of a table: each is refused in one sentence; ``ConfigError`` unless a reader has another.

    The working directory is an empty folder, in which readers may write files.
    """
    rows = dict[str, Refusal]()
    sections = yaml.load(table.read_text(), yaml.CSafeLoader)
    assert set(sections) == set(readers), f"readers without a section, or sections without: {table}"
    for name, reader in readers.items():
        function, error = reader if isinstance(reader, tuple) else (reader, ConfigError)
        for given, key, words in _rows(sections[name]):
            rows[f"{name}-{len(rows)}-{given}"[:80]] = Refusal(function, error, given, key, words)

    def test(refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(refusal.error) as caught:
            _read(refusal.reader, refusal.given)
        sentence = str(caught.value)
        assert "\n" not in sentence and len(sentence) <= MOST_CHARACTERS, sentence
        pattern = ".*".join(map(re.escape, refusal.words.split(" ... ")))
        named = (None, getattr(caught.value, "key", None), sentence.partition(": ")[0])
        assert refusal.key in named, f"{sentence!r} does not name {refusal.key!r}"
        assert re.search(pattern, sentence), f"{sentence!r} does not say {refusal.words!r}"

    parametrized: Callable[[Refusal, Path, pytest.MonkeyPatch], None]
    parametrized = pytest.mark.parametrize("refusal", rows.values(), ids=rows.keys())(test)
    return parametrized


def of_file(name: str, reader: Reader) -> Reader:
    """A reader whose refusals must begin with the file."""

    def read(*args: Any, **fields: Any) -> None:
        with pytest.raises(ConfigError, match=f"^{re.escape(name)}:") as caught:
            reader(*args, **fields)
        raise caught.value

    return read


def _read(reader: Reader, given: Any) -> None:
    if isinstance(given, dict):
        reader(**given)
    else:
        reader(*(given if isinstance(given, list) else [given]))


def _rows(section: list[Any]) -> Iterator[tuple[Any, str | None, str]]:
    for row in section:
        if isinstance(row, dict):
            yield from ((given, row.get("key"), row.get("words", "")) for given in row["each"])
        else:
            given, key, *words = row if len(row) > 1 else (*row, None)
            yield given, key, "".join(words)
