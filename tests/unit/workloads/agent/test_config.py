from __future__ import annotations

from dataclasses import replace

import pytest

from railyard.scale import Scale
from topos.plan import FabricPlan, HostPort, SwitchPlan
from workloads.agent.config import AgentConfig, Incarnation, configs_from_json, configs_to_json
from workloads.program import Collective, Compute, Group, Program, Recv, Send

PROGRAM = Program(
    "p",
    (
        (Compute(0, "c", 1.5), Send(1, "s", "pp", 1, 8, (0,))),
        (Recv(0, "r", "pp", 0, 8), Collective(1, "a", "all_gather", "dp", 8, (0,))),
    ),
    {"pp": Group("pp", "pp", (0, 1), stage=0), "dp": Group("dp", "dp", (1,), "scale-up", 1)},
)
PORT = HostPort(1, "g0", 0, 0, "g0-r0", "02:00:00:00:00:01", "10.0.0.1", 50.0)
PLAN = FabricPlan("ocs", 2, 1, 1, 9000, (SwitchPlan("rail0", 0x10000, "ocs", "rail", (PORT,)),))


def test_agents_share_their_program_and_their_plan_after_they_are_handed_over() -> None:
    configs = [
        AgentConfig(r, "job", "provisioned", PROGRAM, Scale(0.001, 2.0), PLAN, f"e{r}", "ch", 3, 7, True, 5.0)
        for r in range(2)
    ]
    handed = configs_from_json(configs_to_json(configs))
    assert handed == configs
    assert handed[0].program is handed[1].program and handed[0].plan is handed[1].plan


def test_a_life_wants_real_numbers() -> None:
    incarnation = Incarnation(3, 8, "dp", 4, 1000, "disk", 1, (0, 2), (("data", 1.5),), 0.1)
    config = AgentConfig(0, "job", "native", PROGRAM, Scale(1.0), PLAN, "e", incarnation=incarnation)
    assert config.real_payload and replace(config, incarnation=None, verify=True).real_payload
    assert not replace(config, incarnation=None).real_payload


def test_a_peer_may_compute_its_whole_step_before_it_is_lost() -> None:
    config = AgentConfig(0, "job", "native", PROGRAM, Scale(1.0, 2.0), PLAN, "e", ack_timeout_s=5)
    assert config.peer_timeout_s == 5 + 2.0 * 1.5
    assert replace(config, script="s", script_pause_s=600).peer_timeout_s == 608


@pytest.mark.parametrize(("ack_timeout_s", "heartbeat_s"), [(0.1, 0.4), (1.0, 0.4), (8.0, 1.0), (30.0, 2.0)])
def test_heartbeats_come_before_peers_give_up_and_not_so_often_that_a_busy_machine_is_late(
    ack_timeout_s: float, heartbeat_s: float
) -> None:
    config = AgentConfig(0, "job", "native", PROGRAM, Scale(1.0), PLAN, "e", ack_timeout_s=ack_timeout_s)
    assert config.heartbeat_s == heartbeat_s
