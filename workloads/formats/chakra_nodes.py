"""Reads one Chakra execution trace (``NAME.RANK.et``) as nodes: the file format, without its meaning for a run.

A file is a sequence of length-prefixed protobuf messages: one GlobalMetadata, then one Node per operation of the rank.
Source: MLCommons Chakra, ``et_def.proto`` (schema 0.0.4); the field numbers are those of that file.
"""

from __future__ import annotations

import re
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
from railyard.reading import read_bytes

Value = int | float | str | bytes | tuple[int, ...]
MOST_BYTES = 32 << 20
"""Largest trace file that is read: one rank's trace of a step is some megabytes."""
MOST_NODES = 50_000
MOST_DEPS = 500_000
"""Most nodes, and dependencies between them, of the traces of all ranks together."""
_MOST_LIST = 1 << 16
"""Most values of a list in an attribute: the members of a group are the longest."""

_SCHEMA = """
message GlobalMetadata { bytes version = 1; repeated bytes attr = 2; }
message Node {
    uint64 id = 1; bytes name = 2; uint64 type = 3; repeated uint64 ctrl_deps = 4; repeated uint64 data_deps = 5;
    uint64 duration_micros = 7; repeated Attribute attr = 10;
}
message Attribute {
    bytes name = 1; double double_val = 3; float float_val = 5; int32 int32_val = 7; Int32List int32_list = 8;
    int64 int64_val = 9; Int64List int64_list = 10; uint32 uint32_val = 11; Uint32List uint32_list = 12;
    uint64 uint64_val = 13; Uint64List uint64_list = 14; sint32 sint32_val = 15; sint64 sint64_val = 17;
    fixed32 fixed32_val = 19; fixed64 fixed64_val = 21; sfixed32 sfixed32_val = 23; sfixed64 sfixed64_val = 25;
    uint64 bool_val = 27; bytes string_val = 29; bytes bytes_val = 31;
}
message Int32List { repeated int32 values = 1; }
message Int64List { repeated int64 values = 1; }
message Uint32List { repeated uint32 values = 1; }
message Uint64List { repeated uint64 values = 1; }
"""
"""The fields that are read; protobuf skips all others. Text is declared as bytes, because what is not UTF-8 is replaced
here and refused by protobuf; truth values are numbers. An attribute has one of its values."""


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


def read_nodes(path: Path, rank: int, others: int = 0, others_deps: int = 0) -> list[Node]:
    """The nodes of the file of ``rank``, in file order.

    The files of other ranks have ``others`` nodes with ``others_deps`` dependencies, which count towards the bounds.
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
        others_deps += len(message.ctrl_deps) + len(message.data_deps)
        for count, most, what in ((others + len(nodes) + 1, MOST_NODES, "nodes"), (others_deps, MOST_DEPS, "deps")):
            if count > most:
                raise ConfigError(f"more than {most} {what} in the traces of all ranks, the most that are read",
                                  source=str(path))  # fmt: skip
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
        for field_, value in attribute.ListFields():
            if field_.name != "name":
                if field_.name.endswith("_list") and len(value.values) > _MOST_LIST:
                    wrong = Node(source, rank, message.id, name, NodeType(message.type))
                    raise wrong.error(f"has a list of {len(value.values)} values; at most {_MOST_LIST} are read")
                attributes[_decode(attribute.name)] = _value(field_.name, value)
    return Node(source, rank, message.id, name, NodeType(message.type), deps, message.duration_micros, attributes)


def _value(field_name: str, value: Any) -> Value:
    """The value of an attribute: a list as a tuple, and text decoded."""
    if field_name == "string_val":
        return _decode(value)
    found: Value = tuple(value.values) if field_name.endswith("_list") else value
    return found


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _message_classes() -> tuple[Any, Any]:
    """The classes of GlobalMetadata and Node, made from the schema."""
    schema = FileDescriptorProto(name="chakra.proto", package="chakra", syntax="proto2")
    for message_name, body in re.findall(r"message (\w+) \{(.*?)\}", _SCHEMA, re.DOTALL):
        message = schema.message_type.add(name=message_name)
        for repeated, kind, name, number in re.findall(r"(repeated )?(\w+) (\w+) = (\d+);", body):
            field_ = message.field.add(name=name, number=int(number))
            field_.label = field_.LABEL_REPEATED if repeated else field_.LABEL_OPTIONAL
            if kind[0].isupper():
                field_.type_name = f".chakra.{kind}"
            else:
                field_.type = field_.Type.Value(f"TYPE_{kind.upper()}")
    pool = DescriptorPool()
    pool.Add(schema)
    return tuple(GetMessageClass(pool.FindMessageTypeByName(f"chakra.{name}")) for name in ("GlobalMetadata", "Node"))


_METADATA_CLASS, _NODE_CLASS = _message_classes()
