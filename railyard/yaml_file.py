"""YAML files that people write, within bounds: plain values, as deep and as many as a person writes.

A small file must not become a large object or take long to read, and must not be misread silently. So tags are refused,
and keys that appear twice; an alias counts as all values that it stands for; and numbers are decimal, as in YAML 1.2
(in YAML 1.1, 010 is 8 and 1:30 is 90).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from railyard.errors import ConfigError
from railyard.reading import read_text

MOST_BYTES = 256 << 10
MOST_VALUES = 10_000
MOST_DEPTH = 20
_NUMBERS = (
    ("tag:yaml.org,2002:int", re.compile(r"[-+]?[0-9]{1,18}")),
    (
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(\.[0-9]{1,30}|[0-9]{1,30}(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,4})?|[-+]?\.inf|\.nan"),
    ),
)


class _Refused(yaml.MarkedYAMLError):
    """Raised for YAML that is not read, with a sentence about it as its problem."""


class _Loader(yaml.SafeLoader):
    """Loads plain values and refuses what ``MOST_VALUES`` and ``MOST_DEPTH`` do not allow, while it reads."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._values = 0
        self._sizes: dict[str, int] = {}
        """Number of values that each finished anchor stands for."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        anchor, before, mark = event.anchor, self._values, cast(Any, event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            self._values += self._sizes.get(anchor, 1)
            if anchor in self.anchors and anchor not in self._sizes:
                raise _Refused(None, None, f"has an alias *{anchor} inside of what it stands for", mark)
        elif event.tag not in (None, "!"):
            raise _Refused(None, None, "has a tag, such as !!int, which is not read; leave it out", mark)
        self._values, self._depth = self._values + 1, self._depth + 1
        for number, most, what in (
            (self._depth, MOST_DEPTH, "levels of keys and lists"),
            (self._values, MOST_VALUES, "values"),
        ):
            if number > most:
                raise _Refused(None, None, f"has more than {most} {what}, the most that are read", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if anchor is not None:
            self._sizes[anchor] = self._values - before
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    problem = f"has the key {key.value[:40]!r} twice; give it once"
                    raise _Refused(None, None, problem, cast(Any, key.start_mark))
                seen.add((key.tag, key.value))
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in patterns if tag.rpartition(":")[2] in ("bool", "null", "merge")]
    for first, patterns in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern in _NUMBERS:
    _Loader.add_implicit_resolver(_tag, re.compile(f"(?:{_pattern.pattern})$", re.ASCII), list("-+.0123456789"))
_Loader.add_constructor(_NUMBERS[0][0], lambda loader, node: int(cast(yaml.ScalarNode, node).value))


class _Dumper(yaml.SafeDumper):
    """Writes what ``_Loader`` reads: text that it would take for a number is in quotes, and nothing is an alias."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Text of several lines as these lines."""
        style = "|" if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Dumper.add_representer(str, _Dumper.represent_str)


def written_mapping(data: Mapping[str, Any]) -> str:
    """A mapping of plain values as YAML that ``read_mapping`` reads as the same values."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def read_mapping(path: Path, what: str, keys: str, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The mapping in a YAML file; ``ConfigError`` names the file, and the line where it is no YAML.

    ``what`` names such a file, ``keys`` some of its keys, for errors.
    """
    text = read_text(path, most_bytes, what)
    try:
        loader = _Loader(text)
        try:
            data = loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ConfigError(problem if isinstance(error, _Refused) else f"is not YAML: {problem}", source=place) from None
    if not isinstance(data, dict):
        raise ConfigError(f"must be a mapping of keys such as {keys}", source=str(path))
    for key in data:
        if not isinstance(key, str):
            raise ConfigError(f"keys must be text such as {keys}, not {key!r}", source=str(path))
    return data
