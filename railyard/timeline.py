"""One timeline for a run: everything that happened, in one clock, one event a line of JSON.

The clock is CLOCK_MONOTONIC, which all namespaces and processes of the machine share. An interval is an
event with ``end``; a moment has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Source = Literal["run", "agent", "controller", "switch", "link"]

OLD_KINDS = {"turn": "sent_in_slot"}
"""Kinds of events that had another name in files of version 0.4.0 and before."""


@dataclass(frozen=True)
class Event:
    """One thing that happened at ``t`` (monotonic seconds), until ``end`` if it lasted.

    ======== =========== =====================================================================
    source   kind        fields (all sizes in emulated bytes, all times wall-clock seconds)
    ======== =========== =====================================================================
    run      point       point (number of the measured point), mode, delay_s, ... (interval)
    run      fault       job, rank, what (a chip is killed: its links cut, its agent ended)
    run      launch      job, incarnation, members (the agents of an incarnation are forked)
    agent    step        rank, step (interval)
    agent    compute     rank, step, op, name, late_s (how late the timer fired) (interval)
    agent    communicate rank, step, op, name, group, dimension, op_kind, bytes, sent_bytes,
                         phase (interval: data moving, without waiting for the ack), and if known:
                         lanes (numbers of the ports it sent on), posted (when its rank came to it),
                         payload_bytes (of what it sent, without headers)
    agent    transfer    rank (the receiver), step, op, transfer (number in its schedule), round,
                         chunk, peer, bytes, reduce (interval: first byte to last)
    agent    wait        rank, step, op, group, index, phase (interval: blocked on an ack)
    agent    phase       rank, step, phase, dimension (interval: first operation to last)
    agent    verified    rank, step, op, wrong (elements that are not what they must be)
    agent    alive       rank, incarnation (it has told the controller for the first time that it lives)
    agent    stage       rank, incarnation, name, given (whether its duration was given) (interval)
    agent    state       rank, step, incarnation, checksum (running checksum after ``step``)
    agent    checkpoint  rank, step, incarnation, bytes, checksum (interval: from the snapshot until it is stored)
    agent    sockets     rank, retransmits, bytes (at the end of a point)
    agent    sent_in_slot rank, group, slot, late_s (how late it was told), bytes (that it sent in this slot of a
                         rotation; interval: until it was told)
    controller slot      group, index, slot, pairs (of ranks that have a circuit) (interval: light)
    controller reconfigure rail, ports, circuits, asked (time the last member asked),
                         group (interval: dark)
    controller ack       group, index, ranks, asked (first request), ready (last request)
    controller refused   group, index, reason
    controller failed    job, rank, cause, heard (last sign of life, None: unknown); t: when it was decided so
    controller replaced  job, number, dead, replacements ([old rank, new rank] pairs), ports (that changed),
                         kept (circuits that nobody touched) (interval: decided until its circuits stand)
    controller stranded  job, number, dead, reason (nobody is left to stand in)
    controller latency   rail, cell_latency_us (emulated), latency (whether packets are held back for it, and why not)
    switch   dropped     rail, packets, bytes, during (number of the reconfiguration)
    link     bytes       interface, rank, lane, tx_bytes, rx_bytes, dropped (counters)
    link     qdisc       interface, rank, lane, dropped (by the queue of the host's end)
    link     switch      switch, packets_in, packets_out (counters of all its ports together)
    link     cpu         busy (0..1 share of all cores), cores, switch_busy (cores used by the datapath),
                         switch_thread (0..1, its busiest thread; both None: kernel datapath) (interval)
    ======== =========== =====================================================================
    """

    t: float
    source: Source
    kind: str
    end: float | None = None
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long it lasted (0 for a moment)."""
        return 0.0 if self.end is None else self.end - self.t

    def __getitem__(self, key: str) -> Any:
        return self.fields[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The field ``key``, or ``default``."""
        return self.fields.get(key, default)

    def to_line(self) -> str:
        """One line of ``events.jsonl``."""
        head: dict[str, Any] = {"t": self.t, "source": self.source, "kind": self.kind}
        if self.end is not None:
            head["end"] = self.end
        return json.dumps({**head, **self.fields}, separators=(",", ":"))

    @staticmethod
    def from_line(line: str) -> Event:
        """The event that ``to_line`` wrote, also in the words of version 0.4.0 and before."""
        data = json.loads(line)
        t, source, kind = data.pop("t"), data.pop("source"), data.pop("kind")
        if "life" in data:
            data["incarnation"] = data.pop("life")
        return Event(t, source, OLD_KINDS.get(kind, kind), data.pop("end", None), data)


def read_events(path: Path) -> list[Event]:
    """All events of a file in order of time; a last line cut short by a crash is left out."""
    events = []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                events.append(Event.from_line(line))
    return sorted(events, key=lambda e: e.t)


def write_events(path: Path, events: Iterable[Event]) -> None:
    """Append ``events`` to ``path``."""
    with path.open("a", encoding="utf-8") as out:
        for event in events:
            out.write(event.to_line() + "\n")
