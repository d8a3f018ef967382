from __future__ import annotations

from typing import Any

from synthetic_job import build_plan

from commands.page.view.bars import KIND, Labels
from commands.page.view.ports import PortStates
from workloads.program import Group


def circuits() -> tuple[PortStates, Labels]:
    labels = Labels()
    return PortStates(build_plan(), labels, {labels("dp0"): KIND["dp"]}), labels


def change(ports: list[int], pairs: list[list[int]], group: str | None = "dp0") -> dict[str, Any]:
    return {"rail": "rail0", "ports": ports, "circuits": pairs, "group": group}


def test_starting_circuits_are_known_from_their_event_alone() -> None:
    found, labels = circuits()
    assert found.state(0.5, labels.texts)["circuits"]["rail0"] == []
    found.standing({"rail": "rail0", "circuits": [[1, 8], [2, 3]], "failed": [5]})
    now = found.state(0.5, labels.texts)
    assert now["circuits"]["rail0"] == [
        {"a": 1, "b": 8, "kind": "start", "group": "", "since": 0.0},
        {"a": 2, "b": 3, "kind": "start", "group": "", "since": 0.0},
    ]
    assert now["failed"]["rail0"] == [5] and now["circuits"]["rail1"] == []
    assert found.lanes["rail0", 4].at(0.5) is None, "a port without a circuit shows nothing"


def test_starting_circuits_that_are_told_late_leave_changed_ports_alone() -> None:
    found, labels = circuits()
    found.reconfigured(1.0, 2.0, change([1, 2], [[1, 2]]))
    found.standing({"rail": "rail0", "circuits": [[1, 8], [3, 4]]})
    assert [(c["a"], c["b"]) for c in found.state(3.0, labels.texts)["circuits"]["rail0"]] == [(1, 2), (3, 4)]


def test_a_failed_port_takes_its_circuit_with_it() -> None:
    found, labels = circuits()
    found.reconfigured(1.0, 2.0, change([1, 2], [[1, 2]]))
    found.port(3.0, {"rail": "rail0", "port": 1, "state": "failed"})
    assert [c["a"] for c in found.state(2.5, labels.texts)["circuits"]["rail0"]] == [1]
    now = found.state(3.5, labels.texts)
    assert now["circuits"]["rail0"] == [] and now["failed"]["rail0"] == [1]
    found.reconfigured(4.0, 5.0, change([1, 2], [[1, 2]]))
    assert found.state(6.0, labels.texts)["failed"]["rail0"] == [1], "what is broken stays so until it is repaired"
    found.port(7.0, {"rail": 0, "port": 1, "state": "restored"})
    found.reconfigured(8.0, 9.0, change([1, 2], [[1, 2]], None))
    assert [c["kind"] for c in found.state(9.5, labels.texts)["circuits"]["rail0"]] == ["other"]
    assert found.state(2.5, labels.texts)["circuits"]["rail0"][0]["kind"] == "dp", "the past stays as it was"


def test_a_group_whose_dimension_is_known_later() -> None:
    labels, kinds = Labels(), dict[int, int]()
    found = PortStates(build_plan(), labels, kinds)
    found.reconfigured(1.0, 2.0, change([1, 2], [[1, 2]], "ring"))
    assert found.state(3.0, labels.texts)["circuits"]["rail0"][0]["kind"] == "other"
    kinds[labels("ring")] = KIND["pp"]
    assert found.state(3.0, labels.texts)["circuits"]["rail0"][0]["kind"] == "pp"
    assert KIND["pp"] in found.within(("rail0", 1), 0.0, 4.0, 4.0)["k"]


def test_dark_times_of_a_rank_that_overlap_and_come_out_of_order() -> None:
    found, _ = circuits()
    found.reconfigured(5.0, 6.0, change([1], []))
    found.reconfigured(1.0, 4.0, change([2], []))
    found.reconfigured(1.5, 2.0, {**change([1], []), "rail": "rail1"})
    assert found.dark_of(0, 0.0, 10.0) == [(1.0, 4.0), (5.0, 6.0)]
    assert found.dark_of(0, 3.5, 5.5) == [(1.0, 4.0), (5.0, 6.0)]
    assert found.split(0, 3.0, 7.0) == ([(3.0, 4.0), (5.0, 6.0)], [(4.0, 5.0), (6.0, 7.0)])
    assert found.dark_of(1, 0.0, 10.0) == [(1.5, 2.0)]


def test_the_present_state_lasts_until_now() -> None:
    found, _ = circuits()
    found.reconfigured(1.0, 2.0, change([1, 2], [[1, 2]]))
    rows = found.within(("rail0", 1), 0.0, 9.0, 5.0)
    assert [(row["s"], row["e"], row["p"]) for row in rows] == [(0.0, 1.0, 0), (1.0, 2.0, 0), (2.0, 5.0, 2)]


def test_ports_and_rails_that_the_fabric_does_not_have() -> None:
    found, labels = circuits()
    found.reconfigured(1.0, 2.0, change([77], [[77, 78]]))
    found.reconfigured(1.0, 2.0, {**change([1], [[1, 2]]), "rail": "nowhere"})
    found.port(1.0, {"rail": "rail9", "port": 1, "state": "failed"})
    assert found.state(3.0, labels.texts)["dark"] == {"rail0": [], "rail1": []}


def test_a_long_dark_time_does_not_make_a_question_look_at_all_others() -> None:
    found, _ = circuits()
    found.reconfigured(0.0, 500.0, change([1, 2], [[1, 2]]))
    for n in range(2000):
        found.reconfigured(n, n + 0.5, change([1, 2], [[1, 2]]))
    assert found.dark_of(0, 0.0, 499.0) == [(0.0, 500.5)], "those within it are no further ones"
    assert found.dark_of(0, 1998.2, 2e9) == [(1998.0, 1998.5), (1999.0, 1999.5)]


def test_a_circuit_is_of_the_group_whose_ranks_it_joins_and_not_of_the_one_that_asked() -> None:
    plan, labels = build_plan(), Labels()
    ports = {p.rank: p.number for p in plan.network("rail")[0].ports}
    a, b, c, d = sorted(ports)[:4]
    members = {"dp0": (a, b), "dp1": (c, d), "pp": (a, c), "ep0": (a, c), "ep1": (b, d), "ep2": (b, d)}
    groups = {name: Group(name, "pp" if name == "pp" else name[:2], ranks) for name, ranks in members.items()}  # type: ignore[arg-type]
    kinds = {labels(name): KIND[name[:2]] for name in ("dp", "ep", *groups)}
    found = PortStates(plan, labels, kinds, groups)

    def joined(group: str, *pairs: tuple[int, int]) -> list[tuple[str, str]]:
        joining = [[ports[one], ports[other]] for one, other in pairs]
        found.reconfigured(now, now + 1, change([*joining[0], *joining[1]], joining, group))
        circuits = found.state(now + 1.5, labels.texts)["circuits"]["rail0"]
        return sorted((circuit["group"], circuit["kind"]) for circuit in circuits)

    now = 0.0
    assert joined("dp1", (a, b), (c, d)) == [("dp0", "dp"), ("dp1", "dp")], "each pair belongs to one group"
    now = 2.0
    assert joined("ep0", (a, c), (b, d)) == [("ep", "ep"), ("ep0", "ep")], "two groups have the second pair"
    now = 4.0
    assert joined("dp0", (a, d), (b, c)) == [("dp", "dp")] * 2, "no group has these pairs"
    now = 6.0
    assert joined("job A placement", (a, b), (c, d)) == [("job A placement", "other")] * 2
