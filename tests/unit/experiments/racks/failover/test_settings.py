"""Settings of the failover experiment, and kills as people write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commands.run import experiment_of, parser_of
from controllers.engine.jobs import Detection
from experiments.faults import Kill, parse_kills, random_kill
from experiments.racks.failover.experiment import FABRICS, LIGHT_NEIGHBOUR, FabricName, Failover, FailoverSettings
from experiments.racks.setting import GRADIENT_BYTES, MORPHLUX_STAGES
from experiments.settings import validated
from railyard.scale import Scale
from topos.describe import plan
from topos.plan import FabricPlan
from topos.racks import RackTopo


def test_a_step_and_a_time_after_the_kill_before() -> None:
    first, second = parse_kills("1@4.5, 16@+0.25", plan(RackTopo()))
    assert first == Kill(1, step=4.5)
    assert second == Kill(16, after_s=0.25)
    assert f"{first},{second}" == "1@4.5,16@+0.25"


def test_random_kills_are_the_same_for_the_same_seed_and_inside_the_job() -> None:
    drawn = [random_kill(seed, (0, 1, 4, 5), 8) for seed in range(50)]
    assert drawn == [random_kill(seed, (0, 1, 4, 5), 8) for seed in range(50)]
    assert {kill.rank for kill in drawn} == {0, 1, 4, 5}
    assert all(kill.step is not None and 0 < kill.step < 8 for kill in drawn)
    assert len({kill.step for kill in drawn}) > 40


SCALE = Scale(1 / 800)


def experiment(**values: Any) -> FailoverSettings:
    return validated(FailoverSettings, values)


def plan_of(made: FailoverSettings, name: FabricName) -> FabricPlan:
    return made.setting(name).plan


def chips_per_tenant(made: FailoverSettings, name: FabricName) -> list[tuple[int, ...]]:
    rack = plan_of(made, name).rack
    assert rack is not None
    return [tuple(sorted(tenant.ranks)) for tenant in rack.tenants]


# ---- what it is by default ---------------------------------------------------------------------------------------


def test_by_default_a_server_of_a_4x4_rack_trains_beside_another_on_all_fabrics() -> None:
    made = experiment()
    assert made.fabrics == FABRICS == ("photonic", "fixed", "e1", "e2", "migrate")
    assert made.scale.scale() == SCALE
    assert made.kills(plan_of(made, "photonic")) == (Kill(1, step=4.5),)
    assert made.job.checkpoint_every < 4.5 < made.steps  # a checkpoint is there, and steps follow
    assert round(GRADIENT_BYTES * 8) == 39_550_000_000  # MORPHLUX, testbed


@pytest.mark.parametrize(
    ("name", "leads", "neighbour", "spares"),
    [
        ("photonic", ("lumion", "one-shot", 0.010), (4, 5, 6, 7), (16, 17, 18, 19)),  # a server outside the torus
        ("fixed", ("fixed-ports", "one-shot", 0.010), (4, 5, 6, 7), (16, 17, 18, 19)),
        ("e1", ("torus", "electrical", 0.0), (4, 5, 6, 7), (12, 13, 14, 15)),  # one of the torus, reached over others
        ("e2", ("torus", "electrical", 0.0), (8, 9, 10, 11), (4, 5, 6, 7)),  # the server beside the job
        ("migrate", ("migrate", "electrical", 10.0), (4, 5, 6, 7), tuple(range(16, 32))),  # another rack
    ],
)
def test_who_leads_each_fabric_who_rents_what_and_what_stands_idle(
    name: FabricName, leads: tuple[str, str, float], neighbour: tuple[int, ...], spares: tuple[int, ...]
) -> None:
    made = experiment()
    setting = made.setting(name)
    assert (setting.policy, setting.mode, setting.delay_s) == leads
    assert chips_per_tenant(made, name) == [(0, 1, 2, 3), neighbour]
    rack = plan_of(made, name).rack
    assert rack is not None and tuple(sorted(rack.spares)) == spares
    assert chips_per_tenant(experiment(neighbour=None), name) == [(0, 1, 2, 3)]


def test_jobs_as_they_are_rented() -> None:
    made = experiment(stages="morphlux", scale={"time": 0.5}, detection={"misses": 4, "detect": ["exit"]})
    for name in made.fabrics:
        setting = made.setting(name)
        job, neighbour = made.jobs(setting)
        assert job.training is not None
        assert (job.name, job.steps, neighbour.name) == ("A", made.steps, "B")
        assert neighbour.steps > 100 * job.steps  # it is ended when the job is over
        lanes = setting.lanes(tuple(job.program.groups.values()))
        assert lanes == {"A": 4 if name == "photonic" else 2}  # every port is steered, or clockwise and back
        assert job.training.detection == Detection(0.125, 4, exit=True)
        assert dict(job.training.stages) == dict(MORPHLUX_STAGES)
        ring = job.program.groups["A"].members
        assert sorted(ring) == [0, 1, 2, 3]


def test_ones_own_policy_leads_the_photonic_rack_only() -> None:
    made = experiment(policy="mine.py:Mine")
    assert (made.setting("photonic").policy, made.setting("photonic").system) == ("mine.py:Mine", "mine.py:Mine")
    assert [made.setting(name).policy for name in ("e1", "e2", "migrate")] == ["torus", "torus", "migrate"]
    assert experiment(policy="morphlux").setting("photonic").system == "MORPHLUX"


def test_presets_of_the_restart_set_the_reprogramming_of_the_mesh_too() -> None:
    assert experiment(stages="real").setting("photonic").delay_s == 0.010
    lumion, morphlux = experiment(stages="lumion"), experiment(stages="morphlux")
    assert [made.setting("photonic").delay_s for made in (lumion, morphlux)] == [1.1, 1.1]
    assert (lumion.stages, morphlux.stages) == ({}, dict(MORPHLUX_STAGES))
    assert lumion.setting("migrate").delay_s == 10.0  # another switch
    assert experiment(stages="morphlux", reconfiguration_delay_ms=50).setting("photonic").delay_s == 0.050
    assert experiment(**lumion.model_dump()) == lumion  # from its own manifest


# ---- kills -------------------------------------------------------------------------------------------------------


def test_random_kills_stand_instead_of_the_default_one() -> None:
    made = experiment(random_kills=20, steps=4)  # the default kill is after step 4
    plan = plan_of(made, "photonic")
    assert made.kills(plan) == ()
    drawn = [kill for (kill,) in made.kills_by_run(plan)]  # every one has a fabric of its own
    assert drawn == [kill for (kill,) in made.kills_by_run(plan)]
    assert len(set(drawn)) == 20 and {kill.rank for kill in drawn} == {0, 1, 2, 3}
    assert all(kill.step is not None and kill.step < 4 for kill in drawn)
    other = experiment(random_kills=3, steps=4, seed=2)
    assert [kill for (kill,) in other.kills_by_run(plan)] != drawn[:3]
    assert experiment(random_kills=3, steps=4).kills_by_run(plan) == [(kill,) for kill in drawn[:3]]
    assert experiment().kills_by_run(plan) == [(Kill(1, step=4.5),)]


# ---- options and files -------------------------------------------------------------------------------------------


def of_line(*words: str) -> FailoverSettings:
    options = parser_of(Failover).read(words)
    made: FailoverSettings = experiment_of(Failover, options).settings
    return made


def test_options_set_their_keys(tmp_path: Path) -> None:
    assert of_line("--fabrics", "e1,e2").fabrics == ("e1", "e2")
    assert of_line("--alone").neighbour is None
    assert MORPHLUX_STAGES == {"library": 3.4, "data": 10.0, "load": 2.1}
    assert of_line("--stages", "morphlux").stages == MORPHLUX_STAGES
    assert of_line("--stages", "real").stages == {}
    assert of_line("--checkpoint-every", "2").job.checkpoint_every == 2
    found = of_line("--heartbeat", "500", "--misses", "4").detection
    assert (found.heartbeat_ms, found.misses, found.detect) == (500, 4, ())
    assert of_line("--controller-dies-after", "300").controller_dies_after_ms == 300
    quick = of_line("--quick")
    assert (quick.fabrics, quick.steps, quick.kill, quick.job.checkpoint_every) == (("photonic", "e1"), 6, "1@3.5", 2)
    assert of_line("--quick", "--random-kills", "3", "--steps", "2").random_kills == 3
    file = tmp_path / "mine.yaml"
    file.write_text("random_kills: 5\ndetection: {detect: [exit]}\n")
    assert of_line(str(file), "--kill", "2@4.5").random_kills == 0
    port = of_line(str(file), "--detect", "port").detection.detection(SCALE)
    assert port.port and not port.exit


def test_an_option_of_the_neighbour_leaves_its_other_values() -> None:
    changed = of_line("--neighbour-compute", "1").neighbour
    assert changed == LIGHT_NEIGHBOUR.model_copy(update={"compute_s": 1.0})
