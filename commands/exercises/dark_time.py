"""Circuits and dark time: a timetable rewires a rail under the traffic of a job, in a gap of that traffic."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from commands.exercises.exercise import Exercise, ExercisePart, Missing
from commands.exercises.frames import EVERYBODY, RailPorts
from commands.lab.lab import Lab, LabSpec
from experiments.timetable import TimedAct, Timetable, written

DARK_MS, LENGTH_S, PERIOD_S, SETTLES_S = 300.0, 3.0, 0.01, 0.2
"""How long ports that change are dark, how long the rail is watched, how often all send, and the wait for the last."""
LATEST_S = 2.2
"""Latest time of an act: what it changes must be seen."""


class Sending(NamedTuple):
    """Packets that are sent from a host to a host, from a time until a time in seconds."""

    source: str
    target: str
    begin_s: float
    end_s: float


JOINED = (Sending("g0", "g2", 2.6, LENGTH_S), Sending("g1", "g3", 2.6, LENGTH_S))
JOB = (
    Sending("g0", "g1", 0.0, 1.0),
    Sending("g2", "g3", 0.0, 1.0),
    Sending("g0", "g2", 2.0, 3.0),
    Sending("g1", "g3", 2.0, 3.0),
)
OTHERS = (*JOINED, Sending("g1", "g2", 0.0, LENGTH_S), Sending("g3", "g0", 0.0, LENGTH_S))


class Observation(NamedTuple):
    """When the frames of each number were sent, and (number, host, host) for each that arrived."""

    sent_s: Mapping[int, float]
    arrived: set[tuple[int, str, str]]


def observe(rail: RailPorts, begin: float) -> Observation:
    """Send frames from all ports until ``LENGTH_S`` after ``begin``, and see where they arrive."""
    hosts, sent_s, found = {number: port.host for number, port in rail.ports.items()}, dict[int, float](), set()
    while (now_s := time.monotonic() - begin) < LENGTH_S:
        number = len(sent_s)
        sent_s[number] = now_s
        for port in hosts:
            rail.send(port, number, EVERYBODY, rail.ports[port].mac)
        found |= rail.arrived(PERIOD_S)
    found |= rail.arrived(SETTLES_S)
    return Observation(sent_s, {(number, hosts[sender], hosts[port]) for number, sender, port in found})


@contextmanager
def observed(file: Path) -> Iterator[Observation]:
    """Carry out the student's timetable on a lab, and observe it; ``Missing`` for what is not a timetable for this."""
    words, tables = written(str(file)), list[Timetable[TimedAct]]()
    if not words:
        raise Missing(f"{file.name} has no act yet")
    spec = LabSpec("rails", {"servers": "4", "gpus": "1"}, dark_ms=DARK_MS)
    with Lab(spec) as lab, RailPorts(lab.net) as rail, ThreadPoolExecutor(1) as observer:
        lab.begin_timetable = tables.append
        lab.at(words)
        (table,) = tables
        for act in table.left:
            if act.verb not in ("connect", "disconnect") or (act.at_s or 0.0) > LATEST_S:
                raise Missing(f"'{act}' is not for this lab; connect and disconnect are, until {LATEST_S:g} s")
        observation = observer.submit(observe, rail, time.monotonic())
        while table.left:
            time.sleep(max(0.0, table.next_time() - time.monotonic()))
            table.run_due(time.monotonic())
        for line in lab.done:
            if ": refused: " in line:
                raise Missing(line)
        yield observation.result()


def check_flows(observation: Observation, flows: Sequence[Sending]) -> None:
    """Raise ``Missing`` if a packet of ``flows`` was lost: its host sent it on all its ports, and none arrived."""
    for flow in flows:
        numbers = [number for number, sent_s in observation.sent_s.items() if flow.begin_s <= sent_s < flow.end_s]
        if lost := sum((number, flow.source, flow.target) not in observation.arrived for number in numbers):
            span = f"from {flow.begin_s:g} s to {flow.end_s:g} s"
            raise Missing(f"{lost} packets from {flow.source} to {flow.target} were lost {span}")


PARTS = (
    ExercisePart(3, "g0 and g2 are joined at the end, and g1 and g3", partial(check_flows, flows=JOINED)),
    ExercisePart(4, "no packet of the job is sent into the dark", partial(check_flows, flows=JOB)),
    ExercisePart(3, "that is done, and no circuit of others goes dark", partial(check_flows, flows=OTHERS)),
)
EXERCISE = Exercise(
    "dark-time", "Circuits by hand, and a gap for them", "timetable.yaml", PARTS, root=True, begin=observed
)
