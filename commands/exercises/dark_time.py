"""Circuits and dark time: a timetable rewires a rail under the traffic of a job, in the gap of that traffic."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from commands.exercises.exercise import Exercise, Missing, Part
from commands.exercises.frames import RailPorts
from commands.lab.lab import Lab, LabSpec
from experiments.timetable import TimedAct, Timetable, written

FILE = "timetable.yaml"
DARK_MS = 300.0
LENGTH_S, PERIOD_S = 3.0, 0.01
"""How long the rail is observed, and how often each port sends a frame."""
LATEST_S = 2.5
"""Latest time of an act: what it changes must be seen."""
FLOWS = (("g0", "g1", 0.0, 1.0), ("g2", "g3", 0.0, 1.0), ("g0", "g2", 2.0, 3.0), ("g1", "g3", 2.0, 3.0))
"""What the job sends: from a host to a host, from a time until a time in seconds."""
INNOCENT = ("g1", "g2", 0.0, LENGTH_S)
MOST_DARK_PORTS = 4


@dataclass(frozen=True)
class Observation:
    """What each frame of a rail did: ``peer`` has (number of the frame, port it left) -> port it came to.

    ``sent_s`` says when all ports sent the frames of a number; ``hosts`` whose a port is.
    """

    hosts: Mapping[int, str]
    sent_s: Mapping[int, float]
    peer: Mapping[tuple[int, int], int]

    def lost(self, source: str, target: str, begin_s: float, end_s: float) -> int:
        """How many moments in the span had no frame from ``source`` to ``target`` that arrived, on any port."""
        moments = [number for number, sent_s in self.sent_s.items() if begin_s <= sent_s < end_s]
        own = [port for port, host in self.hosts.items() if host == source]
        joined = (any(self.hosts.get(self.peer.get((at, port), 0)) == target for port in own) for at in moments)
        return sum(not each for each in joined)

    def dark_ports(self) -> list[int]:
        """The ports from which at least one frame did not arrive, though some did, or none did at the end."""
        return [port for port in self.hosts if any((number, port) not in self.peer for number in self.sent_s)]

    def joined(self, source: str, target: str) -> bool:
        """Whether a circuit joins two hosts at the end."""
        last = max(self.sent_s)
        return any(
            host == source and self.hosts.get(self.peer.get((last, port), 0)) == target
            for port, host in self.hosts.items()
        )


def observe(ports: RailPorts, begin: float) -> Observation:
    """Send frames from all ports until ``LENGTH_S`` after ``begin``, and see where they arrive."""
    sent_s, arrivals, number = dict[int, float](), set(), 0
    while (now_s := time.monotonic() - begin) < LENGTH_S:
        for port in ports.ports:
            ports.send(port, number)
        sent_s[number], number = now_s, number + 1
        arrivals |= ports.arrived(PERIOD_S)
    arrivals |= ports.arrived(0.2)
    peer = {(arrival.number, arrival.sender): arrival.receiver for arrival in arrivals}
    return Observation({number: port.host for number, port in ports.ports.items()}, sent_s, peer)


def performed(folder: Path) -> Observation:
    """Carry out the student's timetable on a lab, and observe it; ``Missing`` for what is not a timetable for this."""
    words = written(str(folder / FILE))
    if not words:
        raise Missing(f"{FILE} has no act yet; begin with one such as '1s connect rail0 2-5'")
    tables = list[Timetable[TimedAct]]()
    spec = LabSpec("rails", {"servers": "4", "gpus": "1"}, dark_ms=DARK_MS)
    with Lab(spec) as lab, RailPorts(lab.net) as ports, ThreadPoolExecutor(1) as observer:
        lab.begin_timetable = tables.append
        lab.at(words)
        (table,) = tables
        if any(act.verb not in ("connect", "disconnect") or (act.at_s or 0.0) > LATEST_S for act in table.left):
            raise Missing(f"take connect and disconnect alone, until {LATEST_S:g} s")
        seen = observer.submit(observe, ports, time.monotonic())
        while table.left:
            time.sleep(max(0.0, table.next_time() - time.monotonic()))
            table.run_due(time.monotonic())
        refused = [line for line in lab.done if ": refused: " in line]
        if refused:
            raise Missing(refused[0])
        return seen.result()


def check_joined(folder: Path) -> None:
    observation = performed(folder)
    for source, target in (("g0", "g2"), ("g1", "g3")):
        if not observation.joined(source, target):
            raise Missing(f"at the end no circuit joins {source} and {target}")


def check_no_packet_lost(folder: Path) -> None:
    observation = performed(folder)
    for source, target, begin_s, end_s in FLOWS:
        if lost := observation.lost(source, target, begin_s, end_s):
            span = f"from {begin_s:g} s to {end_s:g} s"
            raise Missing(f"{lost} packets of {source} to {target} were lost, which are sent {span}")


def check_innocent(folder: Path) -> None:
    observation = performed(folder)
    _must_change(observation)
    if lost := observation.lost(*INNOCENT):
        raise Missing(f"{lost} packets of g1 to g2 were lost; leave their circuit alone")


def check_fewest_ports(folder: Path) -> None:
    observation = performed(folder)
    _must_change(observation)
    dark = observation.dark_ports()
    if len(dark) > MOST_DARK_PORTS:
        named = ", ".join(map(str, dark))
        raise Missing(f"ports {named} went dark; {MOST_DARK_PORTS} are enough, all in one act")


def _must_change(observation: Observation) -> None:
    """Raise ``Missing`` unless the task is done: who changes nothing disturbs nobody."""
    if not (observation.joined("g0", "g2") and observation.joined("g1", "g3")):
        raise Missing("this counts once g0 and g2 are joined, and g1 and g3")


EXERCISE = Exercise(
    name="dark-time",
    title="Circuits by hand, and packets that come while they change",
    file=FILE,
    root=True,
    parts=(
        Part(3, "at the end g0 and g2 are joined, and g1 and g3", check_joined),
        Part(3, "no packet of the job is sent into the dark", check_no_packet_lost),
        Part(2, "the circuit between g1 and g2 stays up", check_innocent),
        Part(2, "no more ports go dark than must", check_fewest_ports),
    ),
)
