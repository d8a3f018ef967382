"""OpenFlow of every version through the framework's own parsers: what a client reads in bytes of a switch."""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from types import SimpleNamespace
from typing import Any

from os_ken.ofproto import ofproto_parser

_VENDOR = 4
VERSIONS = {"1.0": "v1_0", "1.2": "v1_2", "1.3": "v1_3", "1.4": "v1_4", "1.5": "v1_5"}
"""The versions that the framework can read; 1.1 is not among them."""


@cache
def connection(version: str) -> Any:
    """What the framework's messages want to know of a connection."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        name = f"os_ken.ofproto.ofproto_{VERSIONS[version]}"
        ofproto, parser = importlib.import_module(name), importlib.import_module(name + "_parser")
    return SimpleNamespace(ofproto=ofproto, ofproto_parser=parser)


def decode(version: str, message: bytes) -> Any:
    """The message as the framework reads it."""
    found = ofproto_parser.msg(connection(version), *ofproto_parser.header(message), message)
    assert found is not None, f"the framework cannot read type {message[1]} of {version}"
    return found.data if message[1] == _VENDOR else found


def encode(message: Any, xid: int) -> bytes:
    """The bytes of a message of the framework."""
    message.set_xid(xid)
    message.serialize()
    return bytes(message.buf)


def counts(entry: Any) -> tuple[int, int]:
    """Packets and bytes of a flow, an aggregate or a removed flow."""
    if hasattr(entry, "packet_count"):
        return entry.packet_count, entry.byte_count
    return entry.stats["packet_count"], entry.stats["byte_count"]
