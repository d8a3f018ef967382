"""The queues of ports (Linux traffic control): token buckets, queues of links between switches, delays and drops.

Streams that share a link between two switches wait in a queue of up to a second, as they would where senders are paused
(RoCE on lossless Ethernet). An acknowledgement behind them in the queue would delay the stream in the other direction
until it times out. So segments without data go first, as RoCE fabrics give acknowledgements and congestion notices a
class of their own. Two streams in opposite directions over one link of 50 Mb/s reached 99 % of it each; with a single
queue they reached 99 % and, in the first second, 35 % (later 87 %). The queue is an HTB with two classes and a filter
in classic BPF, both of which the kernels of distributions have.

The messages are packed here: pyroute2 has no 64-bit rates and no depth in bytes for token buckets, and takes 60 us for
a message, of which a fabric needs thousands.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import ceil

from pyroute2.netlink import NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST
from pyroute2.netlink.rtnl import RTM_DELQDISC, RTM_NEWQDISC, RTM_NEWTCLASS, RTM_NEWTFILTER, TC_H_ROOT

from railyard.scale import ETHERNET_HEADER_BYTES, TCP_IP_HEADER_BYTES
from topos.kernel.netlink import NetlinkRequest

_BUCKET, _LINK, _DELAY = 0x10000, 0x7A0000, 0x7B0000
"""Handles of the queues; not 1: in the yard, since Open vSwitch takes that for one of its own."""
_FILTERS, _AT_FILTERS, _INCOMING, _OUTGOING = 0xFFFF0000, 0xFFFFFFF1, 0xFFFFFFF2, 0xFFFFFFF3
"""Handle and parent of the queue without packets (clsact) that carries filters, and the parents of its filters."""
_SHARED, _DATA, _FIRST = (_LINK | minor for minor in (1, 2, 3))
_ETHERNET = 1
_ETH_P_ALL, _ETH_P_IP = 0x0003, 0x0800
_KIND, _OPTIONS, _SIZES = 1, 2, 8  # TCA_... of linux/rtnetlink.h
_SIZES_BASE, _SIZES_DATA = 1, 2  # TCA_STAB_... of linux/pkt_sched.h
_TBF_PARMS, _TBF_RATE64, _TBF_BURST = 1, 4, 6  # TCA_TBF_... of linux/pkt_sched.h
_HTB_PARMS, _HTB_INIT, _HTB_RATE64, _HTB_CEIL64 = 1, 2, 6, 7  # TCA_HTB_... of linux/pkt_sched.h
_NETEM_RATE, _NETEM_LATENCY64, _NETEM_JITTER64 = 6, 10, 11  # TCA_NETEM_... of linux/pkt_sched.h
_BPF_ACT, _BPF_CLASSID, _BPF_OPS_LEN, _BPF_OPS, _BPF_FD, _BPF_NAME, _BPF_FLAGS = 1, 3, 4, 5, 6, 7, 8
# TCA_BPF_... of linux/pkt_cls.h
_BPF_DIRECT = 1  # TCA_BPF_FLAG_ACT_DIRECT of linux/pkt_cls.h
_ACT_KIND, _ACT_OPTIONS = 1, 2  # TCA_ACT_... of linux/pkt_cls.h
_MIRRED_PARMS, _REDIRECT = 2, 1  # TCA_MIRRED_PARMS, TCA_EGRESS_REDIR of linux/tc_act/tc_mirred.h
_ACT_OK, _ACT_SHOT, _ACT_STOLEN = 0, 2, 4  # TC_ACT_... of linux/pkt_cls.h
_MOST_32 = 0xFFFFFFFF
_TICK_NS = 64
"""Nanoseconds per tick, the unit in which the kernel takes the depth of a bucket (as time at its rate) and delays."""
_QUANTUM_BYTES = 60_000
_MOST_DELAYED = 100_000
"""Packets that can be delayed at once: more than are in flight on any link, so that none is dropped."""
_INDEX_AT = 20
_CELL, _UNIT, _LONGEST = 3, 1, 0x10080
"""Of a table of sizes: logarithms of the bytes that lengths of one entry may differ by and of the unit of an entry, and
the longest length, of a segment with its headers."""

_WITHOUT_DATA = (
    (0x28, 0, 0, 12),  # the Ethernet type ...
    (0x15, 0, 12, _ETH_P_IP),  # ... is IPv4
    (0x30, 0, 0, 23),  # the protocol ...
    (0x15, 0, 10, 6),  # ... is TCP
    (0xB1, 0, 0, 14),  # X: length of the IP header
    (0x50, 0, 0, 27),  # the TCP flags ...
    (0x45, 7, 0, 1),  # ... are without FIN, which must not overtake the data before it
    (0x50, 0, 0, 26),
    (0x54, 0, 0, 0xF0),
    (0x74, 0, 0, 2),  # length of the TCP header
    (0x0C, 0, 0, 0),
    (0x07, 0, 0, 0),  # X: length of both headers
    (0x28, 0, 0, 16),  # the length of the packet ...
    (0x1D, 1, 0, 0),  # ... is that and no more
    (0x06, 0, 0, 0),  # no
    (0x06, 0, 0, _MOST_32),  # yes
)
"""Classic BPF (code, jump if true, jump if false, value) that finds TCP segments without data."""


_RANDOM = 0xFFFFF000 + 56  # SKF_AD_OFF + SKF_AD_RANDOM of linux/filter.h


def random_drop(loss_percent: float) -> tuple[tuple[int, int, int, int], ...]:
    """Classic BPF (code, jump if true, jump if false, value) whose verdict drops packets at random.

    A 32-bit random number below a threshold means drop; with 100 percent every packet is dropped.
    """
    threshold = round(loss_percent / 100 * 2**32)
    if threshold >= 2**32:
        return ((0x06, 0, 0, _ACT_SHOT),)
    return ((0x20, 0, 0, _RANDOM), (0x35, 1, 0, threshold), (0x06, 0, 0, _ACT_SHOT), (0x06, 0, 0, _ACT_OK))


def _program(instructions: Iterable[tuple[int, int, int, int]]) -> bytes:
    packed = [struct.pack("=HBBI", *instruction) for instruction in instructions]
    return _attribute(_BPF_OPS_LEN, struct.pack("=H", len(packed))) + _attribute(_BPF_OPS, b"".join(packed))


def _attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def _message(kind: int, handle: int, parent: int, name: str, options: bytes, info: int = 0) -> bytes:
    """A traffic control message for interface 0 that makes or replaces; ``_for`` sets the interface."""
    body = struct.pack("=BxxxiIII", 0, 0, handle, parent, info)
    body += _attribute(_KIND, name.encode() + b"\0") + _attribute(_OPTIONS, options)
    flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 0, 0) + body


def _filter_of(protocol: int) -> int:
    """The field ``info`` of a filter of priority 1 for packets of a protocol (an Ethernet type)."""
    return 1 << 16 | socket.htons(protocol)


def _for(index: int, message: bytes, what: str) -> NetlinkRequest:
    packed = bytearray(message)
    struct.pack_into("=i", packed, _INDEX_AT, index)
    return NetlinkRequest(packed, what)


def _rate(rate: int) -> bytes:
    """``struct tc_ratespec`` for ``rate`` bytes per second."""
    return struct.pack("=BBHhHI", 0, _ETHERNET, 0, 0, 0, min(rate, _MOST_32))


def _rate64(kind: int, rate: int) -> bytes:
    """The attribute ``kind`` for a rate that ``_rate`` cannot hold; nothing for any other."""
    return _attribute(kind, struct.pack("=Q", rate)) if rate > _MOST_32 else b""


@lru_cache(maxsize=1 << 8)
def _bucket(rate_mbps: float, burst_bytes: int, limit_bytes: int) -> bytes:
    rate = round(rate_mbps * 1e6 / 8)
    options = _attribute(_TBF_PARMS, _rate(rate) + bytes(12) + struct.pack("=III", limit_bytes, 0, 0))
    options += _rate64(_TBF_RATE64, rate) + _attribute(_TBF_BURST, struct.pack("=I", burst_bytes))
    return _message(RTM_NEWQDISC, _BUCKET, TC_H_ROOT, "tbf", options)


def token_bucket(index: int, name: str, rate_mbps: float, burst_bytes: int, limit_bytes: int) -> NetlinkRequest:
    """Shape the traffic leaving interface ``index`` by a token bucket (tc-tbf).

    One that the interface has already is changed in place and keeps its packets, since it has the same handle.
    """
    message = _bucket(rate_mbps, burst_bytes, limit_bytes)
    return _for(index, message, f"shaping {name} to {rate_mbps:g} Mb/s")


@lru_cache(maxsize=1 << 4)
def _sizes(mtu: int, overhead: int) -> bytes:
    headers, sizes = TCP_IP_HEADER_BYTES + ETHERNET_HEADER_BYTES, []
    for length in range(0, _LONGEST, 1 << _CELL):
        frames = max(1, ceil((length - headers) / (mtu - TCP_IP_HEADER_BYTES)))
        middle = length + (1 << _CELL) // 2
        sizes.append((middle + frames * overhead + (frames - 1) * headers) >> _UNIT)
    base = _attribute(_SIZES_BASE, struct.pack("=BBhi4I", _CELL, _UNIT, 0, 0, _ETHERNET, 0, 0, len(sizes)))
    return _attribute(_SIZES, base + _attribute(_SIZES_DATA, struct.pack(f"={len(sizes)}H", *sizes)))


def counting(request: NetlinkRequest, mtu: int, overhead: int) -> NetlinkRequest:
    """``request`` for a queue, which is then to count ``overhead`` bytes more for each frame of up to ``mtu`` bytes.

    To a long segment the kernel would add an overhead once, and no headers. So a table of sizes (tc-stab) gives what
    all frames of a TCP segment take, for every length: to 4 bytes.
    """
    packed = bytearray(request.packed) + (_sizes(mtu, overhead) if overhead else b"")
    struct.pack_into("=I", packed, 0, len(packed))
    return NetlinkRequest(packed, request.what)


def _class(handle: int, parent: int, rate: int, ceiling: int, burst_s: float, priority: int) -> bytes:
    """An HTB class; ``rate`` and ``ceiling`` in bytes per second, buckets of ``burst_s`` seconds of them."""
    depth = min(round(burst_s * 1e9 / _TICK_NS), _MOST_32)
    parameters = _rate(rate) + _rate(ceiling) + struct.pack("=5I", depth, depth, _QUANTUM_BYTES, 0, priority)
    options = _attribute(_HTB_PARMS, parameters) + _rate64(_HTB_RATE64, rate) + _rate64(_HTB_CEIL64, ceiling)
    return _message(RTM_NEWTCLASS, handle, parent, "htb", options)


@lru_cache(maxsize=1 << 8)
def _link(rate_mbps: float, burst_bytes: int, limit_bytes: int) -> tuple[bytes, ...]:
    rate = round(rate_mbps * 1e6 / 8)
    burst_s = burst_bytes / rate
    queue = _attribute(_HTB_INIT, struct.pack("=5I", 3, 10, _DATA & 0xFFFF, 0, 0))
    without_data = _attribute(_BPF_CLASSID, struct.pack("=I", _FIRST))
    without_data += _program(_WITHOUT_DATA)
    return (
        _message(RTM_NEWQDISC, _LINK, TC_H_ROOT, "htb", queue),
        _class(_SHARED, _LINK, rate, rate, burst_s, 0),
        # Data has 1 % of the rate guaranteed and borrows all that acknowledgements leave.
        _class(_DATA, _SHARED, max(rate // 100, 1), rate, burst_s, 1),
        _class(_FIRST, _SHARED, rate, rate, burst_s, 0),
        _message(RTM_NEWQDISC, 0, _DATA, "bfifo", struct.pack("=I", limit_bytes)),
        _message(RTM_NEWTFILTER, 0, _LINK, "bpf", without_data, info=_filter_of(_ETH_P_IP)),
    )


def link_queue(
    index: int, name: str, rate_mbps: float, burst_bytes: int, limit_bytes: int, *, again: bool = False
) -> Iterator[NetlinkRequest]:
    """Requests that shape the traffic leaving interface ``index`` to ``rate_mbps``, acknowledgements first.

    ``burst_bytes`` pass at once after a pause, and up to ``limit_bytes`` may be queued. The interface must not have a
    queue yet, or with ``again`` this one, which then keeps its packets.
    """
    what = f"shaping {name} to {rate_mbps:g} Mb/s, acknowledgements first,"
    queue, *classes, data, classifier = _link(rate_mbps, burst_bytes, limit_bytes)
    wanted = (*classes, data) if again else (queue, *classes, data, classifier)
    return (_for(index, message, what) for message in wanted)


def delay_packets(index: int, name: str, delay_us: float, jitter_us: float = 0.0) -> NetlinkRequest:
    """Delay packets that leave interface ``index`` by ``delay_us`` microseconds, in place of any earlier delay.

    Packets that are held already keep their time.

    The delay of a packet differs by up to ``jitter_us``, evenly distributed; packets keep their order, which netem sees
    to where it has a rate (here the highest).
    """
    delay_ns, jitter_ns = round(delay_us * 1e3), round(jitter_us * 1e3)
    ticks = (min(ns // _TICK_NS, _MOST_32) for ns in (delay_ns, jitter_ns))
    options = struct.pack("=6I", next(ticks), _MOST_DELAYED, 0, 0, 0, next(ticks))
    options += _attribute(_NETEM_LATENCY64, struct.pack("=q", delay_ns))
    if jitter_ns:
        options += _attribute(_NETEM_JITTER64, struct.pack("=q", jitter_ns))
        options += _attribute(_NETEM_RATE, struct.pack("=IiIi", _MOST_32, 0, 0, 0))
    message = _message(RTM_NEWQDISC, _DELAY, TC_H_ROOT, "netem", options)
    return _for(index, message, f"delaying packets of {name} by {delay_us:g} us")


def remove_delay(index: int, name: str) -> NetlinkRequest:
    return _delete(index, _DELAY, TC_H_ROOT, f"removing the delay of packets of {name}")


def _delete(index: int, handle: int, parent: int, what: str) -> NetlinkRequest:
    body = struct.pack("=BxxxiIII", 0, index, handle, parent, 0)
    return NetlinkRequest(struct.pack("=IHHII", 16 + len(body), RTM_DELQDISC, NLM_F_REQUEST, 0, 0) + body, what)


def filters(index: int, name: str) -> NetlinkRequest:
    """Let interface ``index`` have filters for incoming and outgoing packets (``redirect``, ``lose``)."""
    return _for(index, _message(RTM_NEWQDISC, _FILTERS, _AT_FILTERS, "clsact", b""), f"preparing filters of {name}")


def no_filters(index: int, name: str) -> NetlinkRequest:
    """Remove what ``filters`` has prepared, with all filters of interface ``index``."""
    return _delete(index, _FILTERS, _AT_FILTERS, f"removing the filters of {name}")


def redirect(index: int, name: str, to: int) -> NetlinkRequest:
    """Send packets that arrive at interface ``index`` out of interface ``to``."""
    parameters = struct.pack("=5IiI", 0, 0, _ACT_STOLEN, 0, 0, _REDIRECT, to)
    action = _attribute(_ACT_KIND, b"mirred\0") + _attribute(_ACT_OPTIONS, _attribute(_MIRRED_PARMS, parameters))
    options = _attribute(_BPF_ACT, _attribute(1, action)) + _program(((0x06, 0, 0, _MOST_32),))
    message = _message(RTM_NEWTFILTER, 0, _INCOMING, "bpf", options, info=_filter_of(_ETH_P_ALL))
    return _for(index, message, f"forwarding packets of {name}")


@lru_cache(maxsize=1 << 4)
def _run_program(program_fd: int, program: str) -> bytes:
    options = _attribute(_BPF_FD, struct.pack("=I", program_fd)) + _attribute(_BPF_NAME, program.encode() + b"\0")
    options += _attribute(_BPF_FLAGS, struct.pack("=I", _BPF_DIRECT))
    return _message(RTM_NEWTFILTER, 0, _INCOMING, "bpf", options, info=_filter_of(_ETH_P_ALL))


def run_program(index: int, program_fd: int, program: str) -> NetlinkRequest:
    """Run the eBPF program ``program_fd``, named ``program``, for each packet that arrives at interface ``index``."""
    return _for(index, _run_program(program_fd, program), f"attaching the program {program} to interface {index}")


def lose(index: int, name: str, loss_percent: float) -> NetlinkRequest:
    """Drop ``loss_percent`` percent of the packets that leave interface ``index``, at random and before its queue.

    It takes the place of any earlier loss.
    """
    options = _program(random_drop(loss_percent)) + _attribute(_BPF_FLAGS, struct.pack("=I", _BPF_DIRECT))
    message = _message(RTM_NEWTFILTER, 1, _OUTGOING, "bpf", options, info=_filter_of(_ETH_P_ALL))
    return _for(index, message, f"losing {loss_percent:g} % of the packets of {name}")
