from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.propius.control.servers import ControlSettings, ManagerSettings
from experiments.propius.data.client_process import ClientSettings, JobSettings, Vanishing
from experiments.propius.data.clients import stratified
from experiments.propius.data.jobs import FIVE_JOBS, scaled_jobs
from experiments.propius.data.server_process import LeafSettings, RootSettings
from experiments.propius.edge_run import EdgeRun, settings_of
from railyard.errors import ConfigError
from railyard.validation import from_plain
from topos.describe import plan
from topos.edge import EdgeTopo

KINDS: dict[str, type[Any]] = {
    "control": ControlSettings,
    "manager": ManagerSettings,
    "root": RootSettings,
    "leaf": LeafSettings,
    "clients": ClientSettings,
    "jobs": JobSettings,
}


def edge_run(**others: Any) -> EdgeRun:
    network = plan(EdgeTopo(clients=9, regions=2))
    assert network.edge is not None
    given: dict[str, Any] = {"clients": tuple(stratified(9, 2, 1)), "managers": 2} | others
    jobs = scaled_jobs(FIVE_JOBS, 1 / 100, 2)
    return EdgeRun(network.edge, tuple(range(100, 100 + network.ranks)), Path("out"), jobs, **({"size": 1000} | given))


def settings(run: EdgeRun, name: str, incarnation: int = 0) -> Any:
    """The settings of a process as it reads them from its parent."""
    given, _ = settings_of(run, name, incarnation, Path("e"))
    return from_plain(KINDS[name.rstrip("0123456789")], json.loads(json.dumps(given["settings"])), "a process")


def test_a_tree_has_leaf_servers_and_a_star_has_none() -> None:
    tree, star = edge_run(), edge_run(topology="star")
    assert tree.names == ("control", "root", "manager0", "manager1", "leaf0", "leaf1", "jobs", "clients0", "clients1")
    assert star.names == ("control", "root", "manager0", "manager1", "jobs", "clients0", "clients1")
    assert settings(tree, "clients1").data == (tree.plan.regions[1].leaf_ip, 7100)
    assert settings(star, "clients1").data == (star.plan.root_ip, 7100)


def test_each_process_gets_the_namespaces_of_its_hosts() -> None:
    run = edge_run()
    found = {name: settings_of(run, name, 0, Path("e")) for name in run.names}
    assert {name: fds for name, (_, fds) in found.items()} == {
        "root": (100,),
        "jobs": (100,),
        "control": (101,),
        "manager0": (101,),
        "manager1": (101,),
        "leaf0": (102,),
        "leaf1": (103,),
        "clients0": (104, 106, 108, 110, 112),
        "clients1": (105, 107, 109, 111),
    }
    assert [client.number for client in settings(run, "clients1").clients] == [1, 3, 5, 7]


def test_the_control_plane_gets_what_the_mode_and_the_policy_say() -> None:
    assert settings(edge_run(mode="authors"), "control").sees == "first"
    assert settings(edge_run(mode="fixed"), "control").sees == "all"
    assert settings(edge_run(mode="authors", sees="all"), "control").sees == "all"
    assert settings(edge_run(), "control").manager_ports == (7001, 7002)
    assert settings(edge_run(), "manager1").address[1] == 7002
    static = settings(edge_run(policy="static"), "clients0")
    assert set(static.assigned.values()) <= {job.name for job in FIVE_JOBS}
    assert settings(edge_run(), "clients0").assigned is None
    drawing = settings(edge_run(policy="random-selection", time=0.5), "clients0")
    assert (drawing.timers.asks, drawing.timers.pause_s, drawing.timers.refused_s) == (0, 10.0, 1.5)


def test_a_transfer_may_take_three_times_as_long_as_at_the_slowest_rate() -> None:
    small, large = edge_run(), edge_run(size=100_000_000, time=0.5)
    assert [settings(small, name).patience_s for name in ("clients0", "leaf0", "jobs")] == [30, 30, 30]
    trunk_s = 3 * 8e8 / (large.plan.trunk_mbps / 2 * 1e6)
    assert settings(large, "leaf1").patience_s == settings(large, "jobs").patience_s == max(30, trunk_s)
    slowest = min(client.rate_mbps for client in settings(large, "clients1").clients)
    assert settings(large, "clients1").patience_s == pytest.approx(max(3 * 8e8 / (slowest * 1e6), trunk_s))
    star = edge_run(size=100_000_000, topology="star")
    assert settings(star, "clients0").patience_s >= 3 * 8e8 / (star.plan.trunk_mbps / 9 * 1e6)


def test_a_leaf_sends_again_after_one_real_second() -> None:
    assert settings(edge_run(time=0.5), "leaf0").retry_s == 0.5


def test_what_is_derived_from_a_baseline_is_run_as_one(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from experiments.propius.control.policies import RandomSelection, Static\n"
        "class Parts(Static): pass\nclass Draws(RandomSelection): pass\n"
    )
    assert settings(edge_run(policy=f"{own}:Parts"), "clients0").assigned is not None
    assert settings(edge_run(policy=f"{own}:Draws"), "clients0").timers.asks == 0


def test_a_manager_that_starts_again_gives_ids_that_were_never_given() -> None:
    assert settings(edge_run(), "manager0").first_id == 0
    assert settings(edge_run(), "manager0", 2).first_id == 2_000_000


def test_a_client_process_gets_the_faults_of_its_clients_only() -> None:
    run = edge_run(vanishing=(Vanishing(2, round=1), Vanishing(3, at_s=4.0)))
    assert settings(run, "clients0").vanishing == (Vanishing(2, round=1),)
    assert settings(run, "clients1").vanishing == (Vanishing(3, at_s=4.0),)


def test_what_does_not_fit_the_network_is_refused() -> None:
    with pytest.raises(ConfigError, match="managers: must be from 1 to 64, not 65"):
        edge_run(managers=65)
    with pytest.raises(ConfigError, match="clients: must be 9, as many as the network has, not 8"):
        edge_run(clients=tuple(stratified(8, 2, 1)))
    with pytest.raises(ConfigError, match="no client 9"):
        replace(edge_run(), vanishing=(Vanishing(9, round=1),))
