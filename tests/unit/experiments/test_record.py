"""What the record of a run and its points note before the first step."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fabric_plans import rail_plan

from experiments.acts import ACTS, acted_on
from experiments.point_run import note_circuits
from experiments.record import Record
from experiments.redraw import read_folder
from experiments.session import Session
from railyard.errors import MachineError
from railyard.point_folder import BESIDE, NOTES, events_of
from railyard.scale import Scale
from railyard.timeline import Event, read_events
from topos.plan import FabricPlan


class Study:
    name = identifier = "rails"
    packets = False
    scale = Scale(1.0)
    spared_share = 0.0
    rows = ()

    class settings:
        @staticmethod
        def model_dump(mode: str) -> dict[str, Any]:
            return {}

    def planned(self) -> int:
        return 1


@pytest.fixture
def record(tmp_path: Path) -> Record:
    record = Record(tmp_path / "out", Study(), Scale(1.0))
    record.open()
    return record


def test_the_folder_of_a_point_says_at_once_what_it_is(record: Record) -> None:
    folder = record.point_folder(3, mode="on-demand", plan="ocs-8", title="on-demand, 50 ms", delay_s=0.2, steps=4)
    (begun,) = read_events(folder / NOTES)
    assert (begun.source, begun.kind, begun.end) == ("run", "begun", None)
    assert begun.fields == {
        "point": 3,
        "mode": "on-demand",
        "plan": "ocs-8",
        "title": "on-demand, 50 ms",
        "delay_s": 0.2,
        "steps": 4,
        "expected_s": None,
    }


def act(t: float, **fields: Any) -> Event:
    return Event(t, "controller", "manual", None, {"what": "fail", "rail": "rail0", "ports": [3], **fields})


def test_the_manifest_counts_acts_and_the_run_says_so_wherever_it_is_read(record: Record) -> None:
    def measured(number: int, title: str, *events: Event) -> None:
        folder = record.point_folder(number, mode="on-demand", plan="ocs", title=title)
        record.add_events([Event(1.0, "agent", "step", 2.0, {"rank": 0, "step": 0}), *events], folder)

    measured(0, "native")
    assert acted_on(record.manifest) is None and ACTS not in record.results.manifest()
    measured(1, "on-demand, 0 ms", act(1.0), act(2.0, what="restore"))
    says = "somebody made port 3 of rail0 fail over REST"
    first = {"point": 1, "title": "on-demand, 0 ms", "acts": 2, "first": says}
    assert record.results.manifest()[ACTS] == [first], "at once, so that a run that is killed has it too"
    assert read_folder(record.results).notes[0] == (
        f"ACTED ON: 2 acts over REST in 1 measurement (on-demand, 0 ms), the first: {says}. It, and later ones on the "
        "same fabric, may measure something else than the settings say."
    )
    for number in (2, 3, 4, 5):
        measured(number, f"on-demand, {number} ms", act(1.0))
    said = acted_on(record.manifest)
    assert said is not None and said.startswith(
        "ACTED ON: 6 acts over REST in 5 measurements (on-demand, 0 ms; on-demand, 2 ms; on-demand, 3 ms and 2 more), "
    )
    record.close(None)


def test_what_was_measured_beside_the_jobs_is_among_the_events_of_the_point(record: Record) -> None:
    folder = record.point_folder(0, mode="photonic", plan="rack", title="photonic")
    beside, own = (Event(t, "link", "sampled", None, {"events": 0}) for t in (1.0, 2.0))
    record.add_events([beside])
    assert beside in record.results.events() and beside not in events_of(folder, without=BESIDE)
    record.add_events([own], folder)
    assert record.results.events() == [beside, own]
    record.close(None)


def test_a_point_that_cannot_begin_keeps_no_folder(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("experiments.record.write_events", full)
    with pytest.raises(OSError, match="No space"):
        record.point_folder(0, mode="native", plan="ocs", title="native")
    record.close(MachineError("the disk is full"))
    assert not record.exists


class Controller:
    """A session whose controller answers as a real one; it counts the requests."""

    def __init__(self, plan: FabricPlan, **answer: Any) -> None:
        self.plan, self.answer, self.asked = plan, answer, list[str]()

    def call(self, op: str) -> dict[str, Any]:
        self.asked.append(op)
        return self.answer


def test_the_circuits_that_stand_are_noted_once_for_each_optical_switch(tmp_path: Path) -> None:
    optical = {"name": "rail0", "kind": "ocs", "circuits": [[1, 3], [2, 4]], "ports": {"1": "tuned", "7": "failed"}}
    session = Controller(rail_plan(4), switches=[optical, {"name": "fe", "kind": "electrical"}])
    note_circuits(cast(Session, session), tmp_path)
    (noted,) = read_events(tmp_path / NOTES)
    assert (noted.source, noted.kind) == ("controller", "circuits")
    assert noted.fields == {"rail": "rail0", "circuits": [[1, 3], [2, 4]], "failed": [7]}
    assert session.asked == ["circuits"]


def test_nothing_is_noted_without_a_controller_of_ours_or_optical_switches(tmp_path: Path) -> None:
    remote = Controller(rail_plan(4))
    note_circuits(cast(Session, remote), tmp_path)
    assert remote.asked == ["circuits"] and read_events(tmp_path / NOTES) == []
    electrical = Controller(rail_plan(4))
    electrical.plan = SimpleNamespace(switches=[SimpleNamespace(kind="electrical")])  # type: ignore[assignment]
    note_circuits(cast(Session, electrical), tmp_path)
    assert electrical.asked == []
