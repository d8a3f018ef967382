"""Reads one Chakra execution trace (``NAME.RANK.et``) as nodes: the file format, without its meaning for a run.

A file is a sequence of length-prefixed messages: one GlobalMetadata, then one Node per operation of the rank. Source:
MLCommons Chakra, ``et_def.proto`` (schema 0.0.4); the field numbers are those of that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from railyard.errors import ConfigError
from workloads.formats import protobuf
from workloads.formats.protobuf import Field, WireError

Value = int | float | str | bytes | tuple[int, ...]
MOST_BYTES = 1 << 30
"""Largest trace file that is read: one rank's trace of a step is some megabytes."""


class NodeType(IntEnum):
    """Type of a node, as numbered in the schema."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    SEND = 5
    RECV = 6
    COLLECTIVE = 7


@dataclass(frozen=True)
class Node:
    """One node of a trace; ``deps`` are ids in the same file, control and data together; ``file`` is for errors."""

    file: str
    id: int
    name: str
    type: NodeType
    deps: tuple[int, ...] = ()
    duration_us: int = 0
    attributes: Mapping[str, Value] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """File and node, for errors."""
        return f"{self.file}: node {self.id}" + (f" ({self.name})" if self.name else "")

    def error(self, message: str) -> ConfigError:
        """The error that names this node."""
        return ConfigError(message, source=self.source)

    def number(self, name: str) -> int | None:
        """An integer attribute, None where the node does not have it."""
        value = self.attributes.get(name)
        if value is None or isinstance(value, int):
            return value
        raise self.error(f"{name} is {str(value)[:40]!r}; it must be a whole number")

    def need(self, name: str) -> int:
        """A mandatory integer attribute; raises ``ConfigError`` where it is missing."""
        value = self.number(name)
        if value is None:
            raise self.error(f"has no {name}; a {self.type.name} node needs it")
        return value


def read_nodes(path: Path) -> list[Node]:
    """The nodes of one file, in file order.

    Raises ``ConfigError`` naming the file and the byte or node that is not valid in a Chakra trace.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror}); name a Chakra trace", source=str(path)) from None
    if len(data) > MOST_BYTES:
        raise ConfigError(f"is larger than {MOST_BYTES} bytes; a trace of one rank is smaller", source=str(path))
    try:
        messages = list(protobuf.read_delimited(data))
    except WireError as error:
        raise _not_chakra(path, str(error)) from None
    if not messages:
        raise _not_chakra(path, "it is empty")
    _check_metadata(path, messages[0][1])
    nodes = [_node(path, offset, message) for offset, message in messages[1:]]
    seen: set[int] = set()
    for node in nodes:
        if node.id in seen:
            raise node.error("appears twice in the file; every node needs its own id")
        seen.add(node.id)
    return nodes


def _not_chakra(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"is not a Chakra trace (messages behind their lengths, the metadata and then the nodes): {reason}",
        source=str(path),
    )


def _check_metadata(path: Path, message: bytes) -> None:
    """Check that the first message has only a version (1) and attributes (2), and no field of a node."""
    try:
        for found in protobuf.read_fields(message):
            if found.number not in (1, 2):
                raise WireError(f"its first message has field {found.number}, which metadata has not")
            found.payload()
    except WireError as error:
        raise _not_chakra(path, str(error)) from None


def _node(path: Path, offset: int, message: bytes) -> Node:
    id_, name, kind, duration = 0, "", 0, 0
    deps: list[int] = []
    attributes: dict[str, Value] = {}
    try:
        for found in protobuf.read_fields(message):
            if found.number == 1:
                id_ = found.integer()
            elif found.number == 2:
                name = found.text()
            elif found.number == 3:
                kind = found.integer()
            elif found.number in (4, 5):
                deps += found.integers()
            elif found.number == 7:
                duration = found.integer()
            elif found.number == 10:
                key, value = _attribute(found.payload())
                if value is not None:
                    attributes[key] = value
    except WireError as error:
        raise ConfigError(f"is not a Chakra node: {error}", source=f"{path}: byte {offset}") from None
    try:
        node_type = NodeType(kind)
    except ValueError:
        node_type = NodeType.INVALID
    node = Node(str(path), id_, name, node_type, tuple(dict.fromkeys(deps)), duration, attributes)
    if node_type is NodeType.INVALID:
        raise node.error(f"has type {kind}; types are 1 (metadata) to 7 (collective)")
    return node


def _attribute(message: bytes) -> tuple[str, Value | None]:
    """Name and value of an attribute; a later field of the oneof replaces an earlier one."""
    name, value = "", None
    for found in protobuf.read_fields(message):
        if found.number == 1:
            name = found.text()
        elif found.number >= 3:
            value = _value(found)
    return name, value


def _value(found: Field) -> Value | None:
    """The value of one field of the oneof; None for an unknown kind."""
    number = found.number
    if number == 3:
        return protobuf.as_float(found.integer(), 64)
    if number == 5:
        return protobuf.as_float(found.integer() & 0xFFFF_FFFF, 32)
    if number in (11, 13, 19, 21, 27):
        return found.integer()
    if number in (7, 9, 23, 25):
        return protobuf.signed(found.integer(), 32 if number == 23 else 64)
    if number in (15, 17):
        return protobuf.zigzag(found.integer())
    if number == 29:
        return found.text()
    if number == 31:
        return found.payload()
    if number in (8, 10, 12, 14):
        lists = [inner.integers() for inner in protobuf.read_fields(found.payload()) if inner.number == 1]
        return tuple(protobuf.signed(value) for values in lists for value in values)
    return None
