"""Lets the interfaces of the ports of a fabric follow each other (``link_states``), as the kernel reports changes."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from railyard.errors import MachineError
from topos.kernel import namespaces
from topos.kernel.fastpath.link_states import Act, LinkStates, SetCarrier
from topos.kernel.fastpath.rules import KernelPort
from topos.kernel.netlink import (
    SO_RCVBUFFORCE,
    Netlink,
    NetlinkRequest,
    attributes,
    link_down,
    link_up,
    messages,
    set_carrier,
)

_LINKS = 1  # RTMGRP_LINK of linux/rtnetlink.h
_ERROR, _DONE, _NEW_LINK, _DELETED_LINK, _GET_LINK = 2, 3, 16, 17, 18
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST, NLM_F_DUMP
_EXTENT, _WITHOUT_STATISTICS = 29, 8  # IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS
_CARRIER = 33  # IFLA_CARRIER
_UP = 1  # IFF_UP
_ROOM_BYTES = 8 << 20
_MOST_MESSAGES = 1000
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")


class Carrier:
    """Lets the interfaces of ``ports`` in namespace ``netns_fd`` follow each other; ``run`` when it can be read.

    The states at the start are read by the first ``run``.
    """

    def __init__(self, netns_fd: int, ports: Sequence[KernelPort]) -> None:
        self._states = LinkStates(ports)
        self._dumping = self._again = False
        with ExitStack() as undo:
            self._kernel = undo.enter_context(Netlink(netns_fd))
            with namespaces.inside(netns_fd):
                kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
                self._socket = undo.enter_context(socket.socket(socket.AF_NETLINK, kind))
            self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, _ROOM_BYTES)
            self._socket.bind((0, _LINKS))
            self._ask_for_all()
            self._undo = undo.pop_all()

    def fileno(self) -> int:
        return self._socket.fileno()

    def run(self) -> None:
        """Do what the changes of interfaces that the kernel has reported require; returns at once if there are none.

        ``MachineError`` if the kernel refuses to change an interface that exists.
        """
        acts: list[Act] = []
        for _ in range(_MOST_MESSAGES):
            try:
                received = self._socket.recv(1 << 17)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._again = True  # reports were lost
                continue
            for message in messages(received):
                acts += self._read(message)
        if self._again and not self._dumping:
            self._ask_for_all()
        self._act(acts)

    def _ask_for_all(self) -> None:
        """Ask for the states of all interfaces; the answers come among the changes, as if each had changed."""
        body = _LINK.pack(0, 0, 0, 0, 0) + struct.pack("=HHI", 8, _EXTENT, _WITHOUT_STATISTICS)
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), _GET_LINK, _REQUEST_DUMP, 0, 0) + body)
        self._dumping, self._again = True, False

    def _read(self, message: bytes) -> list[Act]:
        kind = _HEADER.unpack_from(message)[1]
        if kind in (_DONE, _ERROR):
            self._dumping = False
        if kind not in (_NEW_LINK, _DELETED_LINK):
            return []
        family, _, index, flags, _ = _LINK.unpack_from(message, _HEADER.size)
        if family != socket.AF_UNSPEC or not self._states.concerns(index):
            return []
        if kind == _DELETED_LINK:
            return self._states.gone(index)
        return self._states.seen(index, bool(flags & _UP), has_carrier(message))

    def _act(self, acts: Iterable[Act]) -> None:
        todo = list(acts)
        try:
            self._kernel.run(map(_request, todo))
        except MachineError:
            for act in todo:
                self._try(act)

    def _try(self, act: Act) -> None:
        try:
            self._kernel.run([_request(act)])
        except MachineError as error:
            if os.strerror(errno.ENODEV) in str(error):
                return  # the kernel reports its end
            if not isinstance(act, SetCarrier) or os.strerror(errno.EOPNOTSUPP) not in str(error):
                raise
            for other in self._states.carrier_refused(act.interface):
                self._try(other)

    def close(self) -> None:
        self._undo.close()


def _request(act: Act) -> NetlinkRequest:
    name = f"interface {act.interface}"
    if isinstance(act, SetCarrier):
        return set_carrier(act.interface, name, act.on)
    return (link_up if act.up else link_down)(act.interface, name)


def has_carrier(message: bytes) -> bool:
    parts = attributes(message, _HEADER.size + _LINK.size, len(message))
    return any(kind == _CARRIER and message[start] for kind, start, end in parts if end > start)
