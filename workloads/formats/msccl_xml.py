"""Parses the XML of an MSCCL file into elements with line numbers; no DOCTYPE, no entities, no unbounded input."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.parsers import expat

from railyard.errors import ConfigError

MAX_BYTES = 16 << 20
"""Larger files are rejected unread: a step is some 140 bytes, so this is a hundred thousand of them."""
MAX_ELEMENTS = 1 << 17

_DEPTH = {"algo": 0, "gpu": 1, "tb": 2, "copy": 2, "step": 3}
"""Nesting depth of the elements that are read; all others are skipped with their content."""
_NUMBER = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True)
class Element:
    """A start tag with its child elements; ``place`` is ``file:line``."""

    tag: str
    attributes: dict[str, str]
    place: str
    children: list[Element] = field(default_factory=list)

    def text(self, name: str) -> str:
        """A mandatory attribute; raises ``ConfigError`` where it is missing."""
        value = self.attributes.get(name)
        if value is None:
            raise self.error(f"<{self.tag}> needs an attribute {name}")
        return value

    def number(self, name: str, least: int, most: int, default: int | None = None) -> int:
        """An integer attribute from ``least`` to ``most``; ``default``, if any, where it is absent."""
        if default is not None and name not in self.attributes:
            return default
        value = self.text(name)
        if not _NUMBER.fullmatch(value):
            raise self.error(f'{name}="{_short(value)}" of <{self.tag}> must be an integer from {least} to {most}')
        if not least <= int(value) <= most:
            raise self.error(f"{name}={value} of <{self.tag}> must lie between {least} and {most}")
        return int(value)

    def error(self, message: str) -> ConfigError:
        """The error for a mistake at this element."""
        return ConfigError(message, source=self.place)


def parse(text: str, source: str) -> Element:
    """The ``<algo>`` element of ``text``; raises ``ConfigError`` with file and line for an invalid file."""
    builder = _Builder(source)
    try:
        builder.parser.Parse(text.encode("utf-8"), True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise ConfigError(f"is not well-formed XML: {reason}", source=f"{source}:{error.lineno}") from None
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise ConfigError("holds a character that XML cannot have", source=f"{source}:{line}") from None
    if builder.root is None:
        raise ConfigError("needs an <algo> element", source=source)
    return builder.root


class _Builder:
    """Builds the tree of the elements that are read, from the events of expat."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Element | None = None
        self._open: list[Element | None] = []
        self._elements = 0
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._doctype

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        place = f"{self.source}:{self.parser.CurrentLineNumber}"
        depth, self._elements = len(self._open), self._elements + 1
        if self._elements > MAX_ELEMENTS:
            raise ConfigError(f"more than {MAX_ELEMENTS} elements, the most that are read", source=place)
        if depth == 0 and tag != "algo":
            raise ConfigError(f"an MSCCL file is one <algo>, not <{_short(tag)}>", source=place)
        parent = self._open[-1] if self._open else None
        if tag not in _DEPTH or (depth > 0 and parent is None):
            self._open.append(None)
            return
        if _DEPTH[tag] != depth:
            raise ConfigError(f"<{tag}> is in the wrong place; the nesting is algo > gpu > tb > step", source=place)
        element = Element(tag, attributes, place)
        if parent is None:
            self.root = element
        else:
            parent.children.append(element)
        self._open.append(element)

    def _end(self, _tag: str) -> None:
        self._open.pop()

    def _doctype(self, *_: object) -> None:
        raise ConfigError(
            "an MSCCL file has no DOCTYPE and no entities", source=f"{self.source}:{self.parser.CurrentLineNumber}"
        )


def _short(text: str) -> str:
    """A few characters of a file's text, for an error."""
    shown = ascii(text)[1:-1]
    return shown if len(shown) <= 24 else shown[:21] + "..."
