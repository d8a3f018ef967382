from __future__ import annotations

import json
from typing import Any

import pytest

from experiments.mesh.experiment import (
    MeshRouting,
    MeshStudy,
    answers,
    matchings,
    read_matching,
    read_ports,
    used_ports,
    what_works,
)
from experiments.mesh.report import REPORT
from experiments.settings import validated
from measure.results.plain import plain
from railyard.errors import ConfigError
from topos.mesh import Mesh, evenly_spaced

NO_WAY = {"width": 1, "height": 1, "matching": "0-6"}
"""Light that enters a single hexagon at port 0 goes round it one way, and port 6 lies the other way."""


def study(**values: Any) -> MeshStudy:
    return validated(MeshStudy, values)


def answered(**values: Any) -> dict[str, Any]:
    """What the script writes as JSON, read again."""
    mine = study(**values)
    rows = plain([row.to_json() for row in answers(mine, used_ports(mine))])
    found: dict[str, Any] = json.loads(json.dumps(MeshRouting(mine).as_json(rows)))
    return found


# -- what is asked ---------------------------------------------------------------------------------


def test_ports_are_a_number_or_a_list() -> None:
    assert read_ports("8") == 8
    assert read_ports("0, 5,11 ,16") == (0, 5, 11, 16)
    assert read_ports("3,") == (3,)
    assert read_matching("0-3, 2-1") == ((0, 3), (2, 1))
    for wrong in ("", "x", "1-2", "-1", "1.5", "²"):
        with pytest.raises(ValueError, match="must be a number of ports"):
            read_ports(wrong)
    for wrong in ("", "0-", "0-1,", "0,1", "-1-2"):
        with pytest.raises(ValueError, match="must be pairs of ports"):
            read_matching(wrong)


def test_ports_are_spaced_evenly_named_or_those_of_the_matching() -> None:
    assert used_ports(study(width=3, height=3)).ports == tuple(k * 28 // 8 for k in range(8))
    assert used_ports(study(width=3, height=3, ports="9,1,4,2")).ports == (9, 1, 4, 2)
    assert used_ports(study(width=3, height=3, matching="9-1,4-2")).ports == (1, 2, 4, 9)
    assert used_ports(study(width=3, height=3, ports=[9, 1, 4, 2, 7], matching="9-1")).ports == (9, 1, 4, 2, 7)


def test_positions_of_the_factorization_are_the_ports_in_their_order() -> None:
    mine = study(width=3, height=3, ports="9,1,4,2")
    assert matchings(mine, used_ports(mine)) == (((2, 9), (1, 4)), ((1, 2), (4, 9)), ((2, 4), (1, 9)))


# -- what is answered ------------------------------------------------------------------------------


def test_every_matching_of_eight_ports_with_its_light() -> None:
    found = answered()
    assert (found["gates"], found["ports"]) == (73, 44)
    assert found["used_ports"] == list(evenly_spaced(Mesh(7, 3), 8))
    pairs = [tuple(pair) for matching in found["matchings"] for pair in matching["pairs"]]
    assert len(pairs) == len(set(pairs)) == 28
    mesh = Mesh(7, 3)
    for matching in found["matchings"]:
        assert matching["routable"] is True
        assert matching["gates"] == sum(map(len, matching["paths"]))
        crossed = [state == "cross" for state in matching["states"]]
        for (a, b), gates in zip(matching["pairs"], matching["paths"], strict=True):
            assert a < b
            for port, there, way in ((a, b, gates), (b, a, gates[::-1])):
                light = mesh.trace(crossed, port)
                assert (light.port_out, list(light.gates)) == (there, way)


def test_no_way_is_false_when_proved_and_null_otherwise() -> None:
    empty = {"gates": None, "paths": None, "states": None, "flips": None, "path_max": None, "loss_db": None}
    for exact, routable in ((True, False), (False, None)):
        (matching,) = answered(**NO_WAY, exact=exact)["matchings"]
        assert matching["pairs"] == [[0, 6]]
        assert matching["routable"] is routable
        assert matching["proved"] is exact
        assert matching.items() >= empty.items()


def test_only_one_matching() -> None:
    everything, one = answered()["matchings"], answered(only=3)["matchings"]
    assert [m["pairs"] for m in one] == [everything[3]["pairs"]]
    assert one[0]["flips"] is None


def test_flips_are_of_gates_with_light_and_others_keep_their_state() -> None:
    found = answered()["matchings"]
    assert found[0]["flips"] is None
    now = found[0]["states"]
    for matching in found[1:]:
        lit = {gate for gates in matching["paths"] for gate in gates}
        turned = [gate for gate in lit if now[gate] != matching["states"][gate]]
        assert matching["flips"] == len(turned) > 0
        now = [matching["states"][gate] if gate in lit else state for gate, state in enumerate(now)]


def test_loss_and_latency_are_those_of_the_longest_path() -> None:
    mine = study(gate_loss_db=0.25, gate_latency_ps=12, only=0)
    (row,) = answers(mine, used_ports(mine))
    lengths = [len(path) for path in row.paths or ()]
    assert (row.path_min, row.path_max) == (min(lengths), max(lengths))
    assert row.path_mean == sum(lengths) / 4
    assert row.loss_db == pytest.approx(0.25 * max(lengths))
    assert row.latency_ps == pytest.approx(12 * max(lengths))


# -- what is offered -------------------------------------------------------------------------------


def offered(**values: Any) -> str:
    mine = study(**values)
    return what_works(mine, list(answers(mine, used_ports(mine))))


def test_nothing_is_offered_where_everything_has_a_way() -> None:
    assert offered(only=0) == ""


def test_a_matching_without_a_way_comes_with_what_works() -> None:
    """Evenly spaced ports 7 and 14 stand at a corner of this mesh: neither can be reached from elsewhere."""
    said = offered(width=9, height=9, ports=32, choose=False, only=3)
    assert said.startswith(
        "there is no route for 7-73, 4-9, 2-11, 0-14 and 12 more on a mesh of 9 x 9 (proved: light of"
    )
    ports = said.rpartition("--ports ")[2]
    found = answered(width=9, height=9, ports=ports)
    assert len(found["matchings"]) == 31
    assert all(matching["routable"] for matching in found["matchings"])


def test_fewer_ports_are_offered_where_so_many_have_no_way() -> None:
    said = offered(width=1, height=1, ports=4, exact=True, time_s=1)
    assert said.startswith("there is no route for 3-9, 0-6")
    ports = read_ports(said.rpartition("--ports ")[2])
    assert isinstance(ports, tuple)
    assert len(ports) == 2


def test_what_is_not_found_is_not_called_impossible() -> None:
    said = offered(**NO_WAY)
    assert "no route was found for 0-6" in said
    assert "use --exact for a proof" in said
    assert "(proved" not in said


# -- which ports -----------------------------------------------------------------------------------


@pytest.mark.parametrize("choose", [None, True])
def test_other_ports_where_the_evenly_spaced_do_not_do(choose: bool | None) -> None:
    """PIP, arXiv 2501.18136: 32 ports on a mesh of 9 x 9."""
    found = answered(width=9, height=9, ports=32, choose=choose)
    assert found["used_ports"] != list(evenly_spaced(Mesh(9, 9), 32))
    assert len(set(found["used_ports"])) == 32
    assert [matching["routable"] for matching in found["matchings"]] == [True] * 31
    assert max(matching["seconds"] for matching in found["matchings"]) < 15


def test_evenly_spaced_ports_stay_where_they_do_or_where_a_proof_is_asked() -> None:
    even = evenly_spaced(Mesh(3, 3), 12)
    assert used_ports(study(width=3, height=3, ports=8)).how == "evenly spaced"
    assert used_ports(study(width=3, height=3, ports=12, exact=True)).ports == even
    assert used_ports(study(width=3, height=3, ports=12, choose=False)).ports == even
    found = answered(width=3, height=3, ports=12, exact=True, time_s=1)
    assert {matching["routable"] for matching in found["matchings"]} == {False}


def test_ports_that_must_be_chosen_and_cannot_are_refused() -> None:
    mine = study(width=1, height=1, ports=12, choose=True, time_s=0.1)
    with pytest.raises(ConfigError, match="no 12 ports of a mesh of 1 x 1 were found"):
        used_ports(mine)
    even = study(width=1, height=1, ports=12, time_s=0.1)
    assert used_ports(even).ports == tuple(range(12))


# -- the report ------------------------------------------------------------------------------------


def test_the_report_names_the_mesh_and_what_the_device_of_pip_has() -> None:
    mine = study(width=3, height=3, ports=4)
    rows = [row.to_json() for row in answers(mine, used_ports(mine))]
    (table,) = REPORT.tables(rows)
    assert "35 gates, 28 ports" in table.title
    _, device = REPORT.findings(rows, {"gate_loss_db": 0.5, "gate_latency_ps": 10.0})
    assert "72 gates" in str(device) and "40 ports" in str(device) and "has 35 and 28" in str(device)


# -- covers ----------------------------------------------------------------------------------------


def test_a_cover_has_a_row_for_each_matching_and_its_bound() -> None:
    found = answered(width=3, height=3, ports=12, cover=True)
    assert (found["cover"], found["cover_bound"], len(found["matchings"])) == (20, 20, 20)
    assert found["apart"] == [[7, 9], [21, 23]]
    assert all(matching["routable"] for matching in found["matchings"])


def test_a_search_for_a_cover_that_ends_at_its_limit_proves_nothing() -> None:
    mine = study(ports=16, cover=True, time_s=0.1)
    rows = list(answers(mine, used_ports(mine)))
    assert what_works(mine, rows).startswith("the search ended at its limit of 0.1 s with a cover of ")
    assert MeshRouting(mine).status(plain([row.to_json() for row in rows])) == 1
