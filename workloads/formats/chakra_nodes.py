"""Reads one Chakra execution trace (``NAME.RANK.et``) as nodes: the file format, without its meaning for a run.

A file is a sequence of length-prefixed protobuf messages: one GlobalMetadata, then one Node per operation of the rank.
Source: MLCommons Chakra, ``et_def.proto`` (schema 0.0.4); the field numbers are those of that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from io import BytesIO
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.proto import parse_length_prefixed
from google.protobuf.unknown_fields import UnknownFieldSet

from railyard.errors import ConfigError
from workloads.formats.reading import read_bytes

Value = int | float | str | bytes | tuple[int, ...]
MOST_BYTES = 1 << 30
"""Largest trace file that is read: one rank's trace of a step is some megabytes."""

# The fields that are read, as number and type, "*" behind a repeated one; protobuf skips all others. Text is declared
# as bytes, because what is not UTF-8 is replaced here, and refused by protobuf.
_NODE = {
    "id": (1, "uint64"),
    "name": (2, "bytes"),
    "type": (3, "uint64"),
    "ctrl_deps": (4, "uint64*"),
    "data_deps": (5, "uint64*"),
    "duration_micros": (7, "uint64"),
    "attr": (10, "Attribute*"),
}
# An attribute has one value of these types; a list of whole numbers has the number after that of its type.
_SCALARS = {
    "double": 3, "float": 5, "int32": 7, "int64": 9, "uint32": 11, "uint64": 13, "sint32": 15, "sint64": 17,
    "fixed32": 19, "fixed64": 21, "sfixed32": 23, "sfixed64": 25, "bool": 27, "string": 29, "bytes": 31,
}  # fmt: skip
_LISTS = ("int32", "int64", "uint32", "uint64")


class NodeType(IntEnum):
    """Type of a node, as numbered in the schema."""

    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    SEND = 5
    RECV = 6
    COLLECTIVE = 7


@dataclass(frozen=True, eq=False)
class Node:
    """One node of the trace of ``rank``, equal only to itself.

    ``deps`` are ids in the same file, control and data together; ``file`` is for errors.
    """

    file: str
    rank: int
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


def read_nodes(path: Path, rank: int) -> list[Node]:
    """The nodes of the file of ``rank``, in file order.

    Raises ``ConfigError`` naming the file and the byte or node that is not valid in a Chakra trace.
    """
    stream = BytesIO(read_bytes(path, MOST_BYTES, "a Chakra trace"))
    metadata = _next(stream, _METADATA_CLASS, path)
    if metadata is None:
        raise _not_chakra(path, "it is empty")
    for unknown in UnknownFieldSet(metadata):
        raise _not_chakra(path, f"its first message has a field {unknown.field_number} that metadata does not have")
    nodes: dict[int, Node] = {}
    while (message := _next(stream, _NODE_CLASS, path)) is not None:
        node = _node(path, rank, message)
        if node.id in nodes:
            raise node.error("appears twice in the file; every node needs its own id")
        nodes[node.id] = node
    return list(nodes.values())


def _next(stream: BytesIO, message_class: Any, path: Path) -> Any:
    """The next message of the file, None at its end; raises ``ConfigError`` for bytes that are none."""
    start = stream.tell()
    try:
        message = parse_length_prefixed(message_class, stream)
    except (DecodeError, ValueError, OverflowError):
        raise _not_chakra(path, f"the message at byte {start} is cut off or malformed") from None
    if message is not None:
        for unknown in UnknownFieldSet(message):
            if unknown.field_number in message_class.DESCRIPTOR.fields_by_number:
                reason = f"field {unknown.field_number} of the message at byte {start} has a value of another type"
                raise _not_chakra(path, reason)
    return message


def _not_chakra(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"is not a Chakra trace (messages behind their lengths, the metadata and then the nodes): {reason}",
        source=str(path),
    )


def _node(path: Path, rank: int, message: Any) -> Node:
    source, name = str(path), _decode(message.name)
    if not 1 <= message.type <= len(NodeType):
        wrong = Node(source, rank, message.id, name, NodeType.METADATA)
        raise wrong.error(f"has type {message.type}; types are 1 (metadata) to {len(NodeType)} (collective)")
    deps = tuple(dict.fromkeys((*message.ctrl_deps, *message.data_deps)))
    attributes: dict[str, Value] = {}
    for attribute in message.attr:
        chosen = attribute.WhichOneof("value")
        if chosen is not None:
            attributes[_decode(attribute.name)] = _value(chosen, getattr(attribute, chosen))
    return Node(source, rank, message.id, name, NodeType(message.type), deps, message.duration_micros, attributes)


def _value(field_name: str, value: Any) -> Value:
    """The value of an attribute: a list as a tuple, text decoded, a truth value as 0 or 1."""
    if field_name.endswith("_list"):
        return tuple(value.values)
    if field_name == "string_val":
        return _decode(value)
    plain: Value = int(value) if field_name == "bool_val" else value
    return plain


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _message_classes() -> tuple[Any, Any]:
    """The classes of GlobalMetadata and Node, made from their fields."""
    values = {f"{kind}_val": (number, "bytes" if kind == "string" else kind) for kind, number in _SCALARS.items()}
    lists = {f"{kind}_list": (_SCALARS[kind] + 1, f"{kind}List") for kind in _LISTS}
    types = {
        "GlobalMetadata": {"version": (1, "bytes"), "attr": (2, "bytes*")},
        "Node": _NODE,
        "Attribute": {"name": (1, "bytes"), "doc_string": (2, "bytes"), **values, **lists},
        **{f"{kind}List": {"values": (1, f"{kind}*")} for kind in _LISTS},
    }
    schema = FileDescriptorProto(name="chakra.proto", package="chakra", syntax="proto3")
    for type_name, fields in types.items():
        message = schema.message_type.add(name=type_name)
        for name, (number, kind) in fields.items():
            field_ = message.field.add(name=name, number=number)
            field_.label = field_.LABEL_REPEATED if kind.endswith("*") else field_.LABEL_OPTIONAL
            if kind.rstrip("*") in types:
                field_.type_name = f".chakra.{kind.rstrip('*')}"
            else:
                field_.type = field_.Type.Value(f"TYPE_{kind.rstrip('*').upper()}")
            if name in values or name in lists:
                field_.oneof_index = 0
        if type_name == "Attribute":
            message.oneof_decl.add(name="value")
    pool = DescriptorPool()
    pool.Add(schema)
    return tuple(GetMessageClass(pool.FindMessageTypeByName(f"chakra.{name}")) for name in ("GlobalMetadata", "Node"))


_METADATA_CLASS, _NODE_CLASS = _message_classes()
