"""A switch in memory: parses our bytes with ryu's parser, and answers "where does a packet of port p go?"."""

from __future__ import annotations

import struct
import warnings
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from controllers.openflow import flows

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ryu is of 2020
    from ryu.ofproto import ofproto_parser, ofproto_v1_4, ofproto_v1_4_parser


def parse(data: bytes) -> list[Any]:
    """Every message in ``data``, parsed by the framework; flow-mods inside bundles as ``inner`` of their message."""
    datapath = SimpleNamespace(ofproto=ofproto_v1_4, ofproto_parser=ofproto_v1_4_parser)
    found = []
    while data:
        version, kind, length, xid = ofproto_parser.header(data)
        raw, data = data[:length], data[length:]
        assert version == 5 and len(raw) == length
        if kind == 34:  # bundle add: ryu parses no requests of this type
            bundle_id, flags = struct.unpack_from("!I2xH", raw, 8)
            (inner,) = parse(raw[16:])
            assert inner.xid == xid
            found.append(SimpleNamespace(msg_type=kind, xid=xid, bundle_id=bundle_id, flags=flags, inner=inner))
        elif kind == 33:
            bundle_id, control, flags = struct.unpack_from("!IHH", raw, 8)
            found.append(SimpleNamespace(msg_type=kind, xid=xid, bundle_id=bundle_id, control=control, flags=flags))
        elif kind in (18, 20):
            found.append(SimpleNamespace(msg_type=kind, xid=xid, raw=raw))
        else:
            found.append(ofproto_parser.msg(datapath, version, kind, length, xid, raw))
    return found


Key = tuple[int, tuple[tuple[str, Any], ...]]


@dataclass
class FakeSwitch:
    """One flow table with bundles. ``sent`` collects what it would send: (kind, xid or cookie)."""

    flows: dict[Key, Any] = field(default_factory=dict)
    sent: list[tuple[str, int]] = field(default_factory=list)
    bundles: dict[int, list[Any]] = field(default_factory=dict)
    refuses: bool = False

    def take(self, data: bytes) -> bool:
        """Carry out bytes from the controller."""
        failed = False
        for message in parse(data):
            if message.msg_type == 33 and message.control == 0:
                self.bundles[message.bundle_id] = []
            elif message.msg_type == 34:
                self.bundles[message.bundle_id].append(message.inner)
            elif message.msg_type == 33 and message.control == 4:
                mods = self.bundles.pop(message.bundle_id)
                failed = self.refuses
                if failed:
                    self.sent.append(("error", message.xid))
                for mod in () if failed else mods:
                    self._apply(mod)
            elif message.msg_type == 14:
                self._apply(message)
            elif message.msg_type == 18 and message.raw[9] == flows.MULTIPART_PORT:
                self.sent.append(("ports", message.xid))
            elif message.msg_type == 18 and message.raw[9] == flows.MULTIPART_FLOW:
                self.sent.append(("flows", message.xid))
            elif message.msg_type == 20:
                self.sent.append(("barrier", message.xid))
        return True

    def _apply(self, mod: Any) -> None:
        key = (mod.priority, tuple(sorted(mod.match.items())))
        if mod.command == 0:
            self.flows[key] = mod
        elif mod.command == 4:
            self.flows.pop(key, None)
        elif mod.command == 3:
            for found, flow in list(self.flows.items()):
                meant = set(mod.match.items()) <= set(flow.match.items())
                if meant and flow.cookie & mod.cookie_mask == mod.cookie & mod.cookie_mask:
                    del self.flows[found]

    def statistics(self) -> bytes:
        """The entries of a reply with the statistics of all flows (OpenFlow 1.4, section 7.3.5.2)."""
        found = b""
        for (priority, match), mod in self.flows.items():
            assert len(match) <= 1, "no flow of a rotation"
            out = flows.output(mod.instructions[0].actions[0].port) if mod.instructions else b""
            rest = (flows.match_in_port(match[0][1]) if match else flows.MATCH_NOTHING) + out
            head = struct.pack("!HBxIIHHHHHxxQQQ", 48 + len(rest), 0, 1, 2, priority, 0, 0, 0, 0, mod.cookie, 3, 4)
            found += head + rest
        return found

    def goes_to(self, port: int, mac: str | None = None) -> int | None:
        """Where a packet that comes in on ``port`` comes out; None if it is dropped."""
        best: Any = None
        for flow in self.flows.values():
            fits = dict(flow.match.items())
            fitting = fits.get("in_port", port) == port and fits.get("eth_dst", mac) == mac
            if fitting and (best is None or flow.priority > best.priority):
                best = flow
        if best is None or not best.instructions:
            return None
        return int(best.instructions[0].actions[0].port)
