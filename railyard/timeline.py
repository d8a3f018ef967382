"""The timeline of a run: every event on one clock, as one line of JSON per event.

The clock is CLOCK_MONOTONIC, which all namespaces and processes of the machine share; times of another machine are
moved to it. An event with ``end`` is an interval, an event without it a moment.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from railyard.errors import ConfigError
from railyard.ownership import naming, open_text

Source = Literal["run", "agent", "controller", "switch", "link", "edge"]

_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True)
class Event:
    """One event of a run: a moment ``t`` (monotonic seconds), or an interval from ``t`` to ``end``.

    ======== =========== =====================================================================
    source   kind        fields (all sizes in emulated bytes, all times wall-clock seconds)
    ======== =========== =====================================================================
    run      point       point (number of the measured point), mode, delay_s, ..., stopped (true if an error or a signal
                         ended it; it has no row then) (interval)
    run      begun       point, mode, plan (its key in the manifest), title, delay_s, steps and expected_s (None: not
                         known), spared_cores (processors that the scale leaves to other processes, if it does)
                         (before all other events of the point)
    run      started     point (the interval of ``run point`` begins, if the point has a preparation before that)
    run      predicted   point, same_as (the first point with this prediction), plan (its key in the manifest), title,
                         warmup_steps (only in ``predicted.jsonl``: the timeline that follows is that of the model)
    run      fault       job, rank, what (a chip is made to fail: its links are cut and its agent is killed)
    run      act         act (of a timetable, as text), late_s (how long after its time it began) (interval: until the
                         kernel had done it, or the controller had been asked for it)
    run      undone      act (of a timetable that was not done, or not as asked for), reason
    run      left        what (a remote controller closed a connection, and when)
    run      launch      job, incarnation, members (the agents of an incarnation are forked)
    run      cut         lines (number of lines of a log that are not readable: cut short, by a crash or a full disk, or
                         changed)
    run      lost        events (how many that a process numbered are missing in its file before ``t``)
    agent    step        rank, step (interval)
    agent    compute     rank, step, op, name, late_s (how late the timer fired) (interval)
    agent    communicate rank, step, op, name, group, dimension, op_kind, bytes, sent_bytes,
                         phase (interval: data moving, without the wait for the ack), and if known:
                         lanes (numbers of the ports used for sending), posted (when the rank posted the
                         operation), payload_bytes (bytes sent, without headers)
    agent    transfer    rank (the receiver), step, op, transfer (number in its schedule), round,
                         chunk, peer, bytes, reduce (interval: first byte to last)
    agent    wait        rank, step, op, group, index, phase (interval: blocked on an ack)
    agent    roll_call   rank (the caller), step, begun (pieces of the first phase of an eager collective that had
                         begun when its last member came)
    agent    phase       rank, step, phase, dimension (interval: first operation to last)
    agent    verified    rank, step, op, wrong (number of wrong elements)
    agent    alive       rank, incarnation (the agent sent its first heartbeat to the controller)
    agent    stage       rank, incarnation, name, given (whether the settings gave its duration) (interval:
                         one start-up stage)
    agent    state       rank, step, incarnation, checksum (running checksum after ``step``)
    agent    checkpoint  rank, step, incarnation, bytes, checksum (interval: from the snapshot until stored)
    agent    sockets     rank, retransmits, bytes, processor_s (what its steps took of a processor), events (number of
                         the agent's events so far) (at the end of a point)
    agent    sent_in_slot rank, group, slot, late_s (how late the agent learned of the slot), bytes (sent in this
                         slot of a rotation) (interval: from the start of the slot until the agent learned of it)
    controller circuits  rail (an optical switch), circuits (pairs of ports), failed (ports) (those that stand before
                         the first step of a point; noted by the run, so without a number)
    controller manual    what (rewire, gates, fail, restore or fail-chip: somebody asked for it over REST, and it
                         began to change something), and as they apply: rail, circuits and update (as asked for),
                         ports, rank, cause; a rewiring that its switch undid has ``refused`` too
    controller slot      group, index, slot, pairs (of ranks that have a circuit) (interval: circuits up)
    controller reconfigure rail, ports, circuits, asked (time of the last member's request),
                         group (interval: dark)
    controller ack       group, index, ranks, asked (first request), ready (last request)
    controller refused   group, index, reason
    controller failed    job, rank, cause, heard (time of the last heartbeat, None: unknown); t: when the
                         controller declared the failure
    controller replaced  job, number, dead, replacements ([old rank, new rank] pairs), ports (that changed),
                         kept (number of circuits left in place) (interval: from the decision until the circuits
                         are up)
    controller stranded  job, number, dead, reason (no spare is left)
    controller finished  job (it was forgotten; events of the controller and of switches have a number ``n``, and
                         one that is missing was lost)
    controller latency   rail, gate_latency_us (emulated), latency (whether packets are delayed for it, or the reason
                         why not)
    switch   left        rail (its connection to the controller was lost; its flows stay as they are)
    switch   recovered   rail, problem (in words: its connection was lost, or it refused or did not answer a message)
                         (interval: from then until the switch has confirmed all its flows)
    switch   dropped     rail, packets, bytes, during (number of the reconfiguration)
    link     bytes       interface, rank, lane, tx_bytes, rx_bytes, dropped (counters)
    link     qdisc       interface, rank, lane, dropped (by the queue of the host's end)
    link     delay       method (netem or relay), frames, late_p50_s, late_p95_s, late_worst_s (how far from its due
                         time a frame left a delayed link; None: not known), overflowed (frames lost for want of
                         room) (interval)
    link     lost        interface (the sender's), dropped (by the random loss of its link) (interval)
    link     switch      switch, packets_in, packets_out (counters of all its ports together)
    link     forwarding  datapath (bpf, ovs), packets (into all switches), up (of these to Open vSwitch)
    link     sampled     events (number of the sampler's events ``bytes`` and ``cpu``, at its end)
    link     cpu         busy (0..1 share of all cores), cores, steal (0..1 share of all cores, taken by other guests),
                         other (0..1 share of all cores, used by processes that are not the run's, when they were last
                         read), largest (of these the largest few: pairs of a command's name and its share),
                         softirq (0..1 share of the core with the most), switch_busy (cores used by Open
                         vSwitch), switch_thread (0..1, its busiest thread) (interval); of a fabric on several
                         machines, cpu, forwarding and sampled also have: machine
    link     underlay    a, b (two machines), round_trip_ms, loss_share (0..1), mbps (rate of the network between them),
                         demand_mbps (that links between them may ask for) (before and after the steps)
    link     clock       machine, offset_s (drift of its clock since the start of the run), uncertainty_s (by how much
                         the times of its events may be off, corrected as they are, where both directions of the
                         network take the same time), bound_s (the same for any directions)
    edge     registered  job (its number at the job manager)
    edge     request     job, round, demand (clients asked for), attempt (0: the first)
    edge     checkin     client, offers (number of jobs offered)
    edge     bound       client, job, round (ACCEPT was granted)
    edge     refused     client, job (ACCEPT was refused)
    edge     scheduled   job, round, bound (the round has its clients, or takes no more)
    edge     get         client, job, round, bytes, hit (the leaf held the model; None: no leaf) (interval)
    edge     train       client, job, round, late_s (how late the timer fired) (interval)
    edge     push        client, job, round, bytes, outcome (acknowledged, late, lost, refused) (interval)
    edge     flush       leaf, job, round, count, clients (whose updates the sum holds), outcome (acknowledged; late:
                         noted, in fixed; refused, dropped: nobody was told, in authors) (interval)
    edge     sum         job, round, count, crc, order (lists of clients in the order of addition, or None)
    edge     cleared     job, round, count, clients (whose updates the root had and no job got: the round
                         was started again, or they came after the answer)
    edge     round       job, round, scheduling_s, response_s, clients, attempt (interval: from the first
                         request until the round is complete)
    edge     timeout     job, round, phase (scheduling, execution: the round starts again)
    edge     finished    job
    edge     gone        client, why
    edge     trunk       region (interval: the region has the circuit of the trunk)
    ======== =========== =====================================================================
    """

    t: float
    source: Source
    kind: str
    end: float | None = None
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return 0.0 if self.end is None else self.end - self.t

    def __getitem__(self, key: str) -> Any:
        return self.fields[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.fields.get(key, default)

    def to_line(self) -> str:
        """The event as one line of ``events.jsonl``, without the newline."""
        head: dict[str, Any] = {"t": self.t, "source": self.source, "kind": self.kind}
        if self.end is not None:
            head["end"] = self.end
        return _encode({**head, **self.fields})

    @staticmethod
    def from_line(line: str) -> Event:
        data = json.loads(line)
        t, source, kind = float(data.pop("t")), data.pop("source"), data.pop("kind")
        end = data.pop("end", None)
        if not isinstance(source, str) or not isinstance(kind, str):
            raise TypeError("the source and the kind of an event are text")
        return Event(t, cast(Source, source), kind, None if end is None else float(end), data)


def events_in(lines: Iterable[str], file: Path | None = None) -> list[Event]:
    """The events of lines of a log.

    A line that is not readable (cut short by a crash or a full disk, or changed) is left out; an event ``run cut`` says
    how many are. With ``file``, which has only whole lines but for the last, any other one is a ``ConfigError``.
    """
    events, cut = [], 0
    for number, line in enumerate(lines, 1):
        try:
            if not line.endswith("\n"):
                raise ValueError("cut short")
            events.append(Event.from_line(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            if file is not None and line.endswith("\n"):
                source = f"{file}:{number}"
                raise ConfigError("is no event; restore the file, or run the experiment again", source=source) from None
            cut += 1
    if cut:
        events.append(Event(events[-1].t if events else 0.0, "run", "cut", None, {"lines": cut}))
    return events


def with_gaps(events: Iterable[Event], first: int = 0) -> list[Event]:
    """The events of a file whose writer numbers them (``n``), and an event ``run lost`` before each that follows a gap.

    ``first`` is the number that the first one must have. Events without a number are not counted.
    """
    found: list[Event] = []
    for event in events:
        number = event.get("n")
        if number is not None and number > first:
            found.append(Event(event.t, "run", "lost", None, {"events": number - first}))
        if number is not None:
            first = max(first, number + 1)
        found.append(event)
    return found


class NumberedLog:
    """A file of events with a number ``n`` each, its line in the file: one that is missing shows (``with_gaps``).

    Another process may have begun the file. An event is in the file when ``add`` returns; ``OSError`` names the file.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = path = Path(path)
        with naming(path):
            self._file = open_text(path, "a", buffering=1)
            self._numbers = itertools.count(_lines_in(path) if path.is_file() else 0)

    def add(self, event: Event) -> None:
        numbered = replace(event, fields={**event.fields, "n": next(self._numbers)})
        with naming(self._path):
            self._file.write(numbered.to_line() + "\n")

    def close(self) -> None:
        with suppress(OSError):  # a line that could not be written, as ``add`` has said
            self._file.close()


def _lines_in(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def read_events(path: Path) -> list[Event]:
    """All events of a file in order of time (``events_in``)."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        return sorted(events_in(lines), key=lambda e: e.t)


def write_events(path: Path, events: Iterable[Event]) -> None:
    """Append ``events`` to the file ``path``, one line each; ``OSError`` names the file."""
    with naming(path), open_text(path, "a") as out:
        out.write("".join(event.to_line() + "\n" for event in events))
