"""Messages of traffic control that redirect the packets of an interface, and the counters that the kernel answers.

An interface has filters of the kind u32 at its tc ingress, which the kernel tries by their number, lowest first: those
for one destination address, and last one for every packet. Each has an action of the kind mirred, which has a number of
its own and can be changed by it while packets pass. Formats: ``linux/rtnetlink.h``, ``pkt_cls.h``, ``tc_mirred.h`` and
``gen_stats.h``.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence

from topos.kernel.fastpath.rules import Counts
from topos.kernel.netlink import NetlinkRequest, attributes

OTHER = 0xFFF
"""The number of the filter for every packet; those by destination have 1 to ``OTHER`` - 1."""
ANY_ACTION = 0
"""In place of the number of an action: one that the kernel chooses."""

_REQUEST, _ECHO, _REPLACE, _EXCLUSIVE, _CREATE = 0x1, 0x8, 0x100, 0x200, 0x400  # NLM_F_...
_NEW_FILTER, _DELETE_FILTER, _NEW_ACTION, _GET_ACTION = 44, 45, 48, 50  # RTM_...
_INCOMING = 0xFFFFFFF2
_FIRST_TABLE = 0x80000000  # of u32 at an interface
_EVERY_PROTOCOL = 1 << 16 | socket.htons(3)  # at priority 1
_KIND, _OPTIONS = 1, 2  # TCA_...
_U32_SELECTOR, _U32_ACTION = 5, 7  # TCA_U32_SEL, TCA_U32_ACT
_ACTIONS = 1  # TCA_ACT_TAB
_ACTION_OPTIONS, _ACTION_NUMBER, _ACTION_STATISTICS = 2, 3, 4  # TCA_ACT_...
_BASIC, _PACKETS64 = 1, 8  # TCA_STATS_...
_PARAMETERS = 2  # TCA_MIRRED_PARMS
_STOLEN, _REDIRECT = 4, 1  # TC_ACT_STOLEN, TCA_EGRESS_REDIR
_NESTED = 0x8000
_ETHERNET_BYTES = 14
_MOST_CHANGED, _MOST_READ = 32, 8
"""Actions per message: the kernel takes 32, and an answer about more than 8 might not fit into its page."""

_HEADER = struct.Struct("=IHHII")
_FILTER = struct.Struct("=BxxxiIII")
_ATTRIBUTE = struct.Struct("=HH")
_ACTION = struct.Struct("=HHHH8sHHHH5IiI")
_NUMBER, _BASIC_COUNTS = struct.Struct("=I"), struct.Struct("=QI")
_QUESTION = struct.Struct("=HHHH8sHHI")
_FILTER_BYTES, _ACTION_MESSAGE_BYTES = 36, 20  # with the header


def _attribute(kind: int, payload: bytes) -> bytes:
    return _ATTRIBUTE.pack(4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def _request(kind: int, flags: int, body: bytes, what: str) -> NetlinkRequest:
    return NetlinkRequest(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, 0, 0) + body, what)


def _action(place: int, number: int, to: int) -> bytes:
    """The action ``number``, at ``place`` of a list, that sends packets out of interface ``to``."""
    parameters = number, 0, _STOLEN, 0, 0, _REDIRECT, to
    return _ACTION.pack(52, place, 11, _KIND, b"mirred", 36, _ACTION_OPTIONS, 32, _PARAMETERS, *parameters)


def _selector(destination: bytes) -> bytes:
    """``struct tc_u32_sel`` for packets to a MAC address, or for all (``b""``); offsets are from the network header."""
    keys: tuple[tuple[bytes, bytes, int], ...] = ()
    if destination:
        keys = ((b"\0\0\xff\xff", b"\0\0" + destination[:2], -16), (b"\xff\xff\xff\xff", destination[2:], -12))
    head = struct.pack("=BBBxHHhhI", 1, 0, len(keys), 0, 0, 0, 0, 0)
    return head + b"".join(struct.pack("=4s4sii", *key, 0) for key in keys)


def redirect(index: int, number: int, destination: bytes, action: int, to: int) -> NetlinkRequest:
    """Add filter ``number`` to interface ``index``, which sends packets out of interface ``to``.

    ``destination`` is the MAC address of the packets, or ``b""`` for all; ``action`` is the number of the action.
    """
    options = _attribute(_U32_SELECTOR, _selector(destination)) + _attribute(_U32_ACTION, _action(1, action, to))
    body = _FILTER.pack(0, index, _FIRST_TABLE | number, _INCOMING, _EVERY_PROTOCOL)
    body += _attribute(_KIND, b"u32\0") + _attribute(_OPTIONS, options)
    return _request(_NEW_FILTER, _CREATE | _EXCLUSIVE, body, f"redirecting the packets of interface {index}")


def remove(index: int, number: int) -> NetlinkRequest:
    """Remove filter ``number`` of interface ``index`` with its action; the kernel answers with the counters."""
    body = _FILTER.pack(0, index, _FIRST_TABLE | number, _INCOMING, _EVERY_PROTOCOL) + _attribute(_KIND, b"u32\0")
    return _request(_DELETE_FILTER, _ECHO, body, f"removing a filter of interface {index}")


def change(targets: Sequence[tuple[int, int]]) -> Iterator[NetlinkRequest]:
    """Let each action (number, interface) send to that interface; the kernel answers with the counters until then."""
    for start in range(0, len(targets), _MOST_CHANGED):
        part = targets[start : start + _MOST_CHANGED]
        actions = b"".join([_action(place, number, to) for place, (number, to) in enumerate(part, 1)])
        body = bytes(4) + _attribute(_ACTIONS, actions)
        yield _request(_NEW_ACTION, _ECHO | _REPLACE | _CREATE, body, "changing where packets are redirected to")


def read(numbers: Sequence[int]) -> Iterator[NetlinkRequest]:
    """Ask for the counters of the actions with these numbers."""
    for start in range(0, len(numbers), _MOST_READ):
        part = enumerate(numbers[start : start + _MOST_READ], 1)
        head = 11, _KIND, b"mirred", 8, _ACTION_NUMBER
        actions = b"".join([_QUESTION.pack(_QUESTION.size, place, *head, number) for place, number in part])
        yield _request(_GET_ACTION, 0, bytes(4) + _attribute(_ACTIONS, actions), "reading counters of redirections")


def counters(message: bytes) -> Iterator[tuple[int, Counts]]:
    """(number, counts since it was made) of each action in an answer to ``change``, ``read`` or ``remove``.

    The kernel counts a segment that the host left whole (TSO) as the frames that it stands for, and bytes without
    Ethernet headers; here each frame has one of 14 bytes.
    """
    if struct.unpack_from("=H", message, 4)[0] == _DELETE_FILTER:
        options = dict(_attributes(message, _FILTER_BYTES, len(message)))[_OPTIONS]
        actions = dict(_attributes(message, *options)).get(_U32_ACTION, (0, 0))
    else:
        actions = dict(_attributes(message, _ACTION_MESSAGE_BYTES, len(message)))[_ACTIONS]
    places: dict[int, tuple[int, int, int]] = {}
    for _, (start, end) in _attributes(message, *actions):
        # Attributes have a fixed order, so actions of the same length have them at the same places.
        if end - start not in places:
            places[end - start] = _places(message, start, end)
        number_at, basic_at, packets64_at = places[end - start]
        (number,) = _NUMBER.unpack_from(message, start + number_at)
        byte_count, packets = _BASIC_COUNTS.unpack_from(message, start + basic_at)
        if packets64_at:
            (packets,) = struct.unpack_from("=Q", message, start + packets64_at)
        yield number, Counts(packets, byte_count + _ETHERNET_BYTES * packets)


def _places(message: bytes, start: int, end: int) -> tuple[int, int, int]:
    """Where an action at ``start`` has its number, its counts and its packets in 64 bits (0: nowhere), from there."""
    parts = dict(_attributes(message, start, end))
    options = dict(_attributes(message, *parts[_ACTION_OPTIONS]))
    statistics = dict(_attributes(message, *parts[_ACTION_STATISTICS]))
    packets64_at, _ = statistics.get(_PACKETS64, (start, start))
    return options[_PARAMETERS][0] - start, statistics[_BASIC][0] - start, packets64_at - start


def _attributes(message: bytes, start: int, end: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """(kind, (start, end) of the payload) of the attributes in ``message[start:end]``."""
    return ((kind & ~_NESTED, (first, last)) for kind, first, last in attributes(message, start, end))
