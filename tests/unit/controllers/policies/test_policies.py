"""The wiring of each policy, and finding policies by name."""

from __future__ import annotations

import pathlib
import sys
from itertools import permutations

import pytest
from fabric_plans import pipeline_groups, rail_plan
from hypothesis import given
from hypothesis import strategies as st

from controllers.circuits.circuits import Matching
from controllers.policies.catalog import POLICIES, load_policy
from controllers.policies.opus import OpusPolicy
from controllers.policies.policy import Policy
from controllers.policies.static import ElectricalPolicy, OneShotPolicy, StaticPolicy, split_bandwidth
from controllers.policies.wiring import arcs_of, group_paths, ring_paths
from railyard.errors import ConfigError
from railyard.plugin import absolute_name
from railyard.protocol import Hop
from workloads.program import Group
from workloads.rank.paths import choose_path


def test_a_ring_of_two_has_two_circuits_and_of_one_none() -> None:
    assert ring_paths((4, 9)) == ((4, 1, 9, 0), (9, 1, 4, 0))
    assert ring_paths((4,)) == ()


def test_a_pair_leaves_the_upstream_high_and_enters_the_downstream_low() -> None:
    assert group_paths(Group("p", "pp", (3, 7))) == ((3, 1, 7, 0),)
    with pytest.raises(ConfigError, match="group p has 3 members; a pipeline pair must have 2"):
        group_paths(Group("p", "pp", (1, 2, 3)))


def expert_groups(ep: int, dp: int, pp: int = 1) -> tuple[Group, ...]:
    """The groups of EP x DP x PP on one rail: dense rings, EP arcs, rings of experts, pairs."""
    groups = list(pipeline_groups(ep * dp, pp))
    for s in range(pp):
        first = s * ep * dp
        groups += [Group(f"ep.d{d}.s{s}", "ep", tuple(first + d * ep + e for e in range(ep)), stage=s)
                   for d in range(dp) if ep > 1]  # fmt: skip
        groups += [Group(f"edp.e{e}.s{s}", "edp", tuple(first + d * ep + e for d in range(dp)), stage=s)
                   for e in range(ep) if ep > 1 and dp > 1]  # fmt: skip
    return tuple(groups)


def meant(group: Group, ep: int, dp: int) -> tuple[Hop, ...]:
    """The paths that Opus must tell ``group``: an arc has one path less than a ring."""
    return group_paths(group)[: ep - 1] if group.dimension == "ep" and dp > 1 else group_paths(group)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.lists(st.integers(0, 200), max_size=12))
def test_opus_always_wires_what_was_asked_for_and_carries_experts_over_rings(
    ep: int, dp: int, pp: int, picks: list[int]
) -> None:
    groups = expert_groups(ep, dp, pp)
    policy = OpusPolicy(rail_plan(ep * dp * pp))
    standing = {"rail0": Matching(), **policy.start(groups)}
    for pick in picks if groups else []:
        group = groups[pick % len(groups)]
        after = policy.wanted(group, standing)
        assert policy.wanted(group, after) == after
        assert policy.paths(group, after) == meant(group, ep, dp)
        standing = dict(after)


def test_an_all_to_all_changes_nothing_while_the_ring_stands_and_takes_the_stage_back_from_the_chain() -> None:
    groups = {g.name: g for g in expert_groups(2, 2, 2)}
    policy = OpusPolicy(rail_plan(8))
    start = policy.start(list(groups.values()))
    assert policy.wanted(groups["ep.d1.s0"], start) == start
    chain = policy.wanted(groups["pp-s0-d0-r0"], start)
    assert policy.paths(groups["ep.d1.s0"], chain) == ()
    back = policy.wanted(groups["ep.d1.s0"], chain)
    assert policy.paths(groups["ep.d1.s0"], back) == ((2, 1, 3, 0),)
    assert policy.paths(groups["dp-s0-r0"], back) == group_paths(groups["dp-s0-r0"])
    experts = policy.wanted(groups["edp.e1.s0"], back)
    assert policy.paths(groups["edp.e1.s0"], experts) == ((1, 1, 3, 0), (3, 1, 1, 0))
    assert policy.paths(groups["edp.e0.s0"], experts) == ((0, 1, 2, 0), (2, 1, 0, 0))
    assert policy.paths(groups["dp-s0-r0"], experts) == ()


def test_an_ep_group_that_is_the_whole_ring_has_all_of_it_and_one_without_a_ring_its_own() -> None:
    dense, experts, alone = Group("dp", "dp", (0, 1, 2)), Group("a", "ep", (1, 2, 0)), Group("b", "ep", (3, 4, 5))
    policy = OpusPolicy(rail_plan(6))
    start = policy.start([experts, alone, dense])
    assert policy.paths(experts, start) == ring_paths((0, 1, 2))
    assert policy.paths(alone, start) == ring_paths((3, 4, 5))
    assert policy.wanted(alone, start) == start


@pytest.mark.parametrize(
    ("members", "paths"),
    [
        ((3, 0), ((3, 1, 0, 0),)),
        ((2, 3, 0), ((2, 1, 3, 0), (3, 1, 0, 0))),
        ((2, 1), ((1, 1, 2, 0),)),
        ((3, 2, 1, 0), ring_paths((0, 1, 2, 3))),
    ],
)
def test_an_arc_may_wrap_and_run_either_way(members: tuple[int, ...], paths: tuple[Hop, ...]) -> None:
    assert arcs_of([Group("dp", "dp", (0, 1, 2, 3)), Group("ep", "ep", members)]) == {"ep": paths}


def test_another_stage_or_the_scale_up_network_is_no_ring_below() -> None:
    ep = Group("ep", "ep", (0, 2))
    for ring in (Group("dp", "dp", (0, 1, 2), stage=1), Group("dp", "dp", (0, 1, 2), "scale-up"),
                 Group("dp", "dp", (0, 1))):  # fmt: skip
        assert arcs_of([ring, ep]) == {}


def test_static_circuits_carry_experts_over_the_ring_too() -> None:
    dense, experts = Group("dp", "dp", (0, 1, 2, 3)), Group("ep", "ep", (2, 3))
    policy = StaticPolicy(rail_plan(4))
    start = policy.start([experts, dense])
    assert len(start["rail0"]) == 4
    assert policy.paths(experts, start) == ((2, 1, 3, 0),)
    assert policy.paths(dense, start) == ring_paths((0, 1, 2, 3))


@pytest.mark.parametrize("policy", [ElectricalPolicy, StaticPolicy])
@pytest.mark.parametrize("ports", [1, 2])
def test_packet_switches_give_experts_the_ports_of_a_ring(policy: type[Policy], ports: int) -> None:
    """Paths between neighbours; between all others the switches forward (see ``choose_path``)."""
    made = policy(rail_plan(4, ports=ports, kind="electrical"))
    groups = expert_groups(2, 2)
    assert made.start(groups) == {}
    for group in groups:
        paths = made.paths(group, {})
        assert paths == group_paths(group, high=ports - 1)
        for src, dst in permutations(group.members, 2):
            assert choose_path(paths, src, dst, 0, forwarded=True, ports_per_gpu=ports)


def test_opus_keeps_the_rail_of_each_group() -> None:
    plan = rail_plan(2, gpus=2)
    groups = [Group(f"dp{r}", "dp", (r, 2 + r)) for r in range(2)]
    start = OpusPolicy(plan).start(groups)
    assert start == {"rail0": Matching([(2, 3), (1, 4)]), "rail1": Matching([(2, 3), (1, 4)])}


def test_electrical_uses_the_same_ports_without_circuits() -> None:
    policy = ElectricalPolicy(rail_plan(2, kind="electrical"))
    group = Group("g", "dp", (0, 1))
    assert policy.asks(group) and policy.wanted(group, {}) == {} and policy.start([group]) == {}
    assert policy.paths(group, {}) == ring_paths((0, 1))


def test_one_shot_has_ring_and_chain_at_once() -> None:
    policy = OneShotPolicy(rail_plan(4, ports=4))
    groups = pipeline_groups(2, 2)
    wiring = policy.start(groups)
    assert wiring == {"rail0": Matching([(2, 5), (1, 6), (10, 13), (9, 14), (4, 11), (8, 15)])}
    for group in groups:
        assert not policy.asks(group)
        assert len(policy.paths(group, wiring)) == (1 if group.dimension == "pp" else 2)


def test_static_circuits_must_fit_at_once() -> None:
    with pytest.raises(ConfigError, match=r"^the circuits of all groups do not fit at once: port 2"):
        StaticPolicy(rail_plan(4)).start(pipeline_groups(2, 2))
    assert len(StaticPolicy(rail_plan(4)).start(pipeline_groups(4, 1))["rail0"]) == 4


@given(st.dictionaries(st.text(min_size=1), st.floats(1, 1e15), min_size=1), st.floats(1, 1e6))
def test_the_split_uses_all_bandwidth_by_the_square_root(traffic: dict[str, float], total: float) -> None:
    shares = split_bandwidth(total, traffic)
    assert sum(shares.values()) == pytest.approx(total)
    ratios = [shares[k] ** 2 / traffic[k] for k in traffic]
    assert max(ratios) == pytest.approx(min(ratios))


@pytest.mark.parametrize("name", POLICIES)
def test_our_policies_are_found_by_name(name: str) -> None:
    found = type(load_policy(name, rail_plan(2)))
    assert f"{found.__module__}:{found.__name__}" == POLICIES[name]


def test_a_policy_of_ones_own_from_a_file(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from controllers.policies.policy import Policy\nclass Mine(Policy):\n    pass\n")
    assert type(load_policy(f"{file}:Mine", rail_plan(2))).__name__ == "Mine"
    file.write_text("import nothing_of_this_name\n")
    with pytest.raises(ConfigError, match=r"mine.py cannot be imported: ModuleNotFoundError"):
        load_policy(f"{file}:Mine", rail_plan(2))


def test_a_policy_of_the_working_directory_must_be_named_by_its_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise any module that is missing would be taken from there."""
    monkeypatch.chdir(tmp_path)
    pathlib.Path("mine_here.py").write_text(
        "from controllers.policies.policy import Policy\nclass Mine(Policy):\n    pass\n"
    )
    with pytest.raises(ConfigError, match=r"there is no installed module mine_here; .* a path that ends in \.py$"):
        load_policy("mine_here:Mine", rail_plan(2))
    assert str(tmp_path) not in sys.path
    name = absolute_name("mine_here.py:Mine")
    assert name == f"{tmp_path}/mine_here.py:Mine"
    assert type(load_policy(name, rail_plan(2))).__name__ == "Mine"
    assert absolute_name("opus") == "opus" and absolute_name("a.module:Class") == "a.module:Class"


def test_a_policy_of_an_installed_package_is_found_by_its_entry_point(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shipped_policies.py").write_text(
        "from controllers.policies.policy import Policy\nclass Shipped(Policy):\n    pass\n"
    )
    info = tmp_path / "shipped-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shipped\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[railyard.policies]\nshipped = shipped_policies:Shipped\nopus = shipped_policies:Shipped\n"
        "broken = shipped_policies:Absent\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert type(load_policy("shipped", rail_plan(2))).__name__ == "Shipped"
    assert type(load_policy("opus", rail_plan(2))) is OpusPolicy
    with pytest.raises(ConfigError, match="module shipped_policies has no class Absent"):
        load_policy("broken", rail_plan(2))
    with pytest.raises(ConfigError, match=r'is not a policy; did you mean "shipped"\?$'):
        load_policy("shiped", rail_plan(2))


def test_installed_packages_are_searched_for_unknown_names_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railyard.plugin.entry_points", lambda _: pytest.fail("they were searched"))
    load_policy("opus", rail_plan(2))
    load_policy("controllers.policies.follow:FollowPolicy", rail_plan(2))


@pytest.mark.parametrize("policy", [ElectricalPolicy, StaticPolicy])
def test_packet_switches_need_one_port_only(policy: type[Policy]) -> None:
    plan = rail_plan(4, ports=1, kind="electrical")
    ring = Group("ring", "dp", (0, 1, 2, 3))
    assert set(policy(plan).paths(ring, {})) == {(0, 0, 1, 0), (1, 0, 2, 0), (2, 0, 3, 0), (3, 0, 0, 0)}
