"""Forwards by an eBPF program at the tc ingress of the interfaces (``program``), which reads its rules from maps.

The rules of a switch are in two banks. ``set`` writes the bank that is not in use and then changes one word, so that
every packet is forwarded by all of the old rules or by all of the new ones.

Maps and program (bpf(2), ``union bpf_attr`` of linux/bpf.h) are held by file descriptors and go with the last of them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import resource
import struct
import sys
import threading
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from railyard.errors import MachineError
from topos.kernel import queues
from topos.kernel.fastpath.program import (
    FLOW_BITS,
    FLOW_SHIFT,
    KIND_SHIFT,
    LINK,
    TABLE_KEY,
    TAP,
    VALUE_BYTES,
    Map,
    assemble,
)
from topos.kernel.fastpath.rules import ANY_FLOW, OUT, Counts, KernelPort, PortCounts, PortRules, Rule, by_switch
from topos.kernel.netlink import Netlink, NetlinkRequest

_NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361}
_MAP_CREATE, _PROG_LOAD, _MAP_UPDATE_BATCH, _MAP_DELETE_BATCH = 0, 5, 26, 27
_HASH, _ARRAY = 1, 2
_NO_PREALLOCATION, _MAPPABLE = 1 << 0, 1 << 10
_SCHED_CLS = 3
_LOG_BYTES = 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)
_fence = threading.Lock()


def _call(command: int, attributes: bytes, what: str) -> int:
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise MachineError(f"{what} failed: the number of bpf(2) on {platform.machine()} is not known here")
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result = int(_libc.syscall(number, command, buffer, len(attributes)))
    if result < 0:
        code = ctypes.get_errno()
        raise MachineError(f"{what} failed ({os.strerror(code)}{_reason(code)})")
    return result


def _reason(code: int) -> str:
    """Why a kernel refuses bpf(2), where that can be seen."""
    if code not in (1, 13):
        return ""
    with suppress(OSError):
        lockdown = Path("/sys/kernel/security/lockdown").read_text()
        if "[confidentiality]" in lockdown:
            return ": the kernel is locked down"
    return ": bpf(2) needs the capabilities CAP_BPF and CAP_NET_ADMIN" if os.geteuid() == 0 else ": not root"


def _buffer(data: bytes) -> tuple[ctypes.Array[ctypes.c_char], int]:
    """A buffer with ``data`` and its address; it lasts as long as the first of them."""
    buffer = ctypes.create_string_buffer(data, len(data))
    return buffer, ctypes.addressof(buffer)


def _unlimit_memory() -> None:
    """Let maps be of any size: up to Linux 5.10 they count for the memory that a process may lock, at first 64 KiB."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _new_map(kind: int, key_bytes: int, value_bytes: int, entries: int, flags: int, name: str) -> int:
    attributes = struct.pack("=7I16s", kind, key_bytes, value_bytes, entries, flags, 0, 0, name.encode()[:15])
    return _call(_MAP_CREATE, attributes, f"making the map {name} of {entries} entries")


class _Array:
    """A map from 0, 1, ... to values of ``value_bytes`` (a multiple of 8), which the process reads and writes directly.

    ``words`` are its 64-bit words. ``MachineError`` if the kernel refuses it.
    """

    def __init__(self, entries: int, value_bytes: int, name: str) -> None:
        self.entries = entries
        self.fd = _new_map(_ARRAY, 4, value_bytes, entries, _MAPPABLE, name)
        page = mmap.PAGESIZE
        try:
            self._memory = mmap.mmap(self.fd, -(-entries * value_bytes // page) * page)
        except OSError as error:
            os.close(self.fd)
            raise MachineError(f"mapping {name} failed ({error.strerror})") from error
        self._view = memoryview(self._memory)
        self.words = self._view.cast("Q")

    def close(self) -> None:
        """Close the map; programs that use it keep it."""
        self.words.release()
        self._view.release()
        self._memory.close()
        os.close(self.fd)


class _Hash:
    """A map from keys of ``key_bytes`` to values of ``value_bytes``; ``MachineError`` if the kernel refuses."""

    def __init__(self, entries: int, key_bytes: int, value_bytes: int, name: str) -> None:
        self._name = name
        self.fd = _new_map(_HASH, key_bytes, value_bytes, entries, _NO_PREALLOCATION, name)

    def update(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Set the values of ``keys``; ``MachineError`` if the map is full, with some of them set."""
        if keys:
            self._batch(_MAP_UPDATE_BATCH, keys, b"".join(values), "adding to")

    def delete(self, keys: Sequence[bytes]) -> None:
        """Remove ``keys``, which must be in the map."""
        if keys:
            self._batch(_MAP_DELETE_BATCH, keys, b"", "removing from")

    def delete_some(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            with suppress(MachineError):
                self.delete([key])

    def _batch(self, command: int, keys: Sequence[bytes], values: bytes, verb: str) -> None:
        (held_keys, at_keys), (held_values, at_values) = _buffer(b"".join(keys)), _buffer(values)
        at_values = at_values if values else 0
        attributes = struct.pack("=4QIIQQ", 0, 0, at_keys, at_values, len(keys), self.fd, 0, 0)
        _call(command, attributes, f"{verb} the map {self._name} ({len(keys)} entries)")
        del held_keys, held_values

    def close(self) -> None:
        os.close(self.fd)


def _load(code: bytes, name: str) -> int:
    """Load a program for tc; its descriptor. ``MachineError`` with the verifier's last line if it is rejected."""
    program, at_program = _buffer(code)
    licence, at_licence = _buffer(b"GPL\0")
    log, at_log = _buffer(bytes(_LOG_BYTES))
    attributes = struct.pack("=IIQQIIQII", _SCHED_CLS, len(code) // 8, at_program, at_licence, 0, 0, 0, 0, 0)
    attributes += name.encode()[:15].ljust(16, b"\0")
    try:
        return _call(_PROG_LOAD, attributes, f"loading the program {name}")
    except MachineError as error:
        logged = struct.pack(
            "=IIQQIIQII", _SCHED_CLS, len(code) // 8, at_program, at_licence, 1, _LOG_BYTES, at_log, 0, 0
        )
        with suppress(MachineError):
            return _call(_PROG_LOAD, logged + attributes[len(logged) :], f"loading the program {name}")
        lines = [line for line in log.raw.rstrip(b"\0").decode(errors="replace").splitlines() if line]
        reason = next((line for line in reversed(lines) if not line.startswith("processed ")), "")
        raise MachineError(f"{error}{f': {reason}' if reason else ''}") from None
    finally:
        del program, licence


_MOST_INTERFACES = 1 << 16
_MOST_TABLE_ENTRIES = 1 << 20
_LEAST_FLOWS = 1 << 12
_MOST_COUNTERS = 1 << 22
"""Most counters of flows, of all processors together: 64 MiB."""
_NAME = "railyard"


@dataclass
class _Switch:
    """A switch: its number, the slot of each port, its rules as words of two per slot, its tables by destination."""

    number: int
    first: int
    slots: dict[int, int]
    links: dict[int, int]
    words: array[int]
    bank: int = 0
    tables: dict[int, tuple[int, Mapping[bytes, Rule]]] = field(default_factory=dict)
    """Port -> number of its table and the mapping that it was made of."""
    unused: dict[int, Mapping[bytes, Rule]] = field(default_factory=dict)
    """Tables that no port uses since the last change."""


class BpfForwarder:
    """Forwards packets of up to ``ports`` ports in the namespace ``netns_fd`` by rules of up to ``flows`` flows.

    ``MachineError`` where the kernel refuses bpf(2), with its reason; nothing is attached then.
    """

    def __init__(self, netns_fd: int, ports: int, flows: int = _LEAST_FLOWS) -> None:
        self._netns_fd = netns_fd
        self._cpus = _processors()
        most = min(_MOST_COUNTERS // self._cpus, 1 << FLOW_BITS)
        self._slots, self._flows = ports + 1, min(max(flows, _LEAST_FLOWS), most)
        self._switches: dict[str, _Switch] = {}
        self._free = deque[int]()
        self._next_flow = 1
        self._full = False
        self._next_slot = self._next_table = 1
        _unlimit_memory()
        with ExitStack() as undo:
            entries = {
                Map.PORTS: _MOST_INTERFACES,
                Map.BANKS: self._slots,
                Map.RULES: 2 * self._slots,
                Map.FLOWS: self._flows * self._cpus,
                Map.COUNTS: self._slots * self._cpus,
            }
            self._maps = {}
            for kind, count in entries.items():
                self._maps[kind] = _Array(count, VALUE_BYTES[kind], kind.name.lower())
                undo.callback(self._maps[kind].close)
            self._tables = _Hash(_MOST_TABLE_ENTRIES, TABLE_KEY.size, VALUE_BYTES[Map.TABLES], "tables")
            undo.callback(self._tables.close)
            fds = {kind: one.fd for kind, one in self._maps.items()} | {Map.TABLES: self._tables.fd}
            self._program = _load(assemble(fds, self._flows, self._slots, self._cpus), _NAME)
            undo.callback(os.close, self._program)
            self._undo = undo.pop_all()

    def add(self, ports: Sequence[KernelPort]) -> None:
        """Attach the program to the interfaces of ``ports``, each of which starts with ``PortRules()``.

        If one fails, the program stays attached to none of them.
        """
        switches = by_switch(ports)
        for port in ports:
            if max(port.link, port.tap) >= _MOST_INTERFACES:
                raise MachineError(
                    f"port {port.number} of {port.switch} has an interface index above {_MOST_INTERFACES}"
                )
        if self._next_slot + len(ports) > self._slots:
            raise MachineError(f"the fast path was made for {self._slots - 1} ports, which are fewer than there are")
        known = next((name for name in switches if name in self._switches), None)
        if known is not None:
            raise MachineError(f"{known} has its ports already; add all ports of a switch at once")
        for name, some in switches.items():
            self._add_switch(name, some)
        try:
            self._attach([index for port in ports for index in (port.link, port.tap)])
        except MachineError:
            for name in switches:
                del self._switches[name]
            self._next_slot -= len(ports)
            raise

    def _attach(self, interfaces: Sequence[int]) -> None:
        requests: list[NetlinkRequest] = []
        for index in interfaces:
            requests.append(queues.filters(index, f"interface {index}"))
            requests.append(queues.run_program(index, self._program, _NAME))
        with Netlink(self._netns_fd) as kernel:
            kernel.run_or_undo(requests, [queues.no_filters(index, f"interface {index}") for index in interfaces])

    def _add_switch(self, name: str, ports: Sequence[KernelPort]) -> None:
        first = self._next_slot
        self._next_slot += len(ports)
        slots = {port.number: first + place for place, port in enumerate(ports)}
        switch = _Switch(
            len(self._switches), first, slots, {p.number: p.link for p in ports}, array("Q", bytes(16 * len(ports)))
        )
        self._switches[name] = switch
        words = self._maps[Map.PORTS].words
        for port in ports:
            slot = slots[port.number]
            words[2 * port.link], words[2 * port.link + 1] = slot | switch.number << 32, port.tap | LINK << 32
            words[2 * port.tap], words[2 * port.tap + 1] = slot | switch.number << 32, port.link | TAP << 32

    def set(self, switch: str, rules: Mapping[int, PortRules]) -> None:
        """Change the rules of the ports named, all at the same moment.

        ``MachineError`` if there are more rules by destination than the map holds; then no rule changes.
        """
        one = self._switches[switch]
        # Tables go with the next change: until then a packet may be on its way that has read their numbers.
        self._tables.delete([TABLE_KEY.pack(table, mac) for table, to in one.unused.items() for mac in to])
        one.unused = {}
        old = {number: one.tables[number] for number in rules if number in one.tables}
        new = self._make_tables(one, rules)
        for number, port_rules in rules.items():
            at = 2 * (one.slots[number] - one.first)
            one.words[at] = _word(one, port_rules.other)
            one.words[at + 1] = new[number][0] if number in new else 0
            one.tables.pop(number, None)
        one.tables |= new
        one.bank ^= 1
        start = 2 * (one.bank * self._slots + one.first)
        self._maps[Map.RULES].words[start : start + len(one.words)] = one.words
        _finish_writes()
        self._maps[Map.BANKS].words[one.number] = one.bank * self._slots
        used = {number for number, _ in one.tables.values()}
        one.unused = {table: to for table, to in old.values() if table not in used}

    def _make_tables(
        self, switch: _Switch, rules: Mapping[int, PortRules]
    ) -> dict[int, tuple[int, Mapping[bytes, Rule]]]:
        """The table by destination of each port that has one; those that the kernel lacks are put into it."""
        known = {id(to): number for number, to in switch.tables.values()}
        new: dict[int, tuple[int, Mapping[bytes, Rule]]] = {}
        keys: list[bytes] = []
        values: list[bytes] = []
        for port, port_rules in rules.items():
            to = port_rules.to
            if not to:
                continue
            if id(to) not in known:
                known[id(to)] = self._next_table
                keys += (TABLE_KEY.pack(self._next_table, mac) for mac in to)
                values += (struct.pack("=Q", _word(switch, rule)) for rule in to.values())
                self._next_table = self._next_table % 0xFFFFFFFF + 1
            new[port] = known[id(to)], to
        try:
            self._tables.update(keys, values)
        except MachineError:
            self._tables.delete_some(keys)
            raise
        return new

    def new_flow(self) -> int:
        if self._next_flow < self._flows:
            flow = self._next_flow
            self._next_flow += 1
        elif self._free:
            flow = self._free.popleft()
        else:
            if not self._full:
                print(f"fast path: all {self._flows} counters of flows are taken; further flows stay with Open vSwitch",
                      file=sys.stderr)  # fmt: skip
            self._full = True
            return ANY_FLOW
        words = self._maps[Map.FLOWS].words
        for cpu in range(self._cpus):
            at = 2 * (cpu * self._flows + flow)
            words[at] = words[at + 1] = 0
        return flow

    def free_flow(self, flow: int) -> None:
        if flow != ANY_FLOW:
            self._free.append(flow)

    def flow_counts(self, flow: int) -> Counts:
        if flow == ANY_FLOW:
            return Counts()
        words, step = self._maps[Map.FLOWS].words, 2 * self._flows
        return Counts(*(sum(words[2 * flow + i + cpu * step] for cpu in range(self._cpus)) for i in (0, 1)))

    def port_counts(self, switch: str) -> dict[int, PortCounts]:
        words, step = self._maps[Map.COUNTS].words, 6 * self._slots
        counts = {}
        for number, slot in self._switches[switch].slots.items():
            sums = [sum(words[6 * slot + i + cpu * step] for cpu in range(self._cpus)) for i in range(6)]
            counts[number] = PortCounts(Counts(*sums[:2]), Counts(*sums[2:4]), Counts(*sums[4:]))
        return counts

    def close(self) -> None:
        """Close maps and program; what is attached goes on with its last rules and ends with its interfaces."""
        self._undo.close()


def _finish_writes() -> None:
    """Let every processor see what was written before this call ahead of what is written after it.

    x86 does so by itself. Arm keeps that order from the release of a lock to the next acquisition.
    """
    for _ in range(2):
        with _fence:
            pass


def _word(switch: _Switch, rule: Rule) -> int:
    return rule.kind << KIND_SHIFT | rule.flow << FLOW_SHIFT | (switch.links[rule.port] if rule.kind == OUT else 0)


def _processors() -> int:
    """Number of processors of the machine (1 more than the highest number)."""
    with open("/sys/devices/system/cpu/present", encoding="ascii") as file:
        return int(file.read().strip().replace("-", ",").rpartition(",")[2]) + 1
