"""Ports of switches over time: their circuits, and the counters of interfaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_job import build_plan

from commands.page.view.bars import KIND, Labels
from commands.page.view.ports import Counter, PortCounters, PortStates
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


RECORDS = st.lists(st.tuples(st.floats(0.001, 5), st.integers(0, 10_000)), min_size=2, max_size=30)


def counted(records: list[tuple[float, int]]) -> tuple[Counter, list[float], list[int]]:
    counter, t, sent, times, totals = Counter(), 0.0, 0, [], []
    for seconds, more in records:
        t, sent = t + seconds, sent + more
        counter.add(t, sent, 2 * sent)
        times.append(t)
        totals.append(sent)
    return counter, times, totals


@given(RECORDS, st.integers(1, 40))
def test_no_byte_is_lost_or_counted_twice_in_intervals(records: list[tuple[float, int]], bins: int) -> None:
    counter, times, totals = counted(records)
    edges = np.linspace(times[0], times[-1], bins + 1)
    assert counter.sent(edges).sum() == pytest.approx(totals[-1] - totals[0], abs=1e-6)


@given(RECORDS, st.floats(0, 1))
def test_the_rate_at_a_moment_is_that_between_the_records_around_it(
    records: list[tuple[float, int]], share: float
) -> None:
    counter, times, totals = counted(records)
    t = times[0] + share * (times[-1] - times[0])
    place = sum(1 for each in times if each <= t)
    if place == len(times):
        place -= 1
    wanted = (totals[place] - totals[place - 1]) / (times[place] - times[place - 1])
    assert counter.rates_at(t, 1e-9) == pytest.approx((wanted, 2 * wanted))


def test_a_counter_that_was_reset_and_records_out_of_order() -> None:
    counter = Counter()
    for t, sent in ((0.0, 0.0), (1.0, 100.0), (0.5, 50.0), (2.0, 10.0), (3.0, 60.0)):
        counter.add(t, sent, 0.0)
    assert len(counter) == 4
    assert list(counter.sent(np.array([0.0, 1.0, 2.0, 3.0]))) == [100.0, 0.0, 50.0]
    assert counter.rates_at(1.5) == counter.rates_at(-1) == (0.0, 0.0)


def test_a_record_that_was_read_late_counts_when_the_port_can_have_carried_its_bytes() -> None:
    """As measured: 0.158 s of line rate in a record 0.049 s after the one before it, and 0.158 s later nothing more."""
    counter = Counter(most=1000.0, late_s=0.5)
    for t, sent in ((0.0, 0), (0.1, 100), (0.149, 258), (0.307, 258), (0.4, 300)):
        counter.add(t, sent, 0.0)
    edges = np.arange(0.0, 0.41, 0.01)
    assert counter.sent(edges).max() <= 10.0 + 1e-9
    assert counter.sent(edges).sum() == pytest.approx(300)
    assert counter.rates_at(0.2) == pytest.approx((1000.0, 0.0))
    assert counter.rates_at(0.28) == (0.0, 0.0)


def test_a_record_after_a_late_one_with_nothing_new_and_an_interface_without_a_limit() -> None:
    late = Counter(most=1000.0, late_s=0.5)
    for t, sent in ((0.0, 0), (0.1, 300), (0.2, 300), (0.5, 400)):
        late.add(t, sent, 0.0)
    assert len(late) == 3 and list(late.sent(np.array([0.0, 0.3, 0.5]))) == pytest.approx([300.0, 100.0])
    fast = Counter(most=1000.0, late_s=0.5)
    for number in range(20):
        fast.add(number / 10, number * 1000.0, 0.0)
    assert fast.sent(np.array([0.0, 1.9])).sum() == pytest.approx(19000.0), "its times do not drift away"


@given(RECORDS, st.floats(0.01, 5000.0))
def test_late_records_lose_no_byte(records: list[tuple[float, int]], most: float) -> None:
    counter, last = Counter(most, 0.5), 0.0
    t = sent = 0.0
    for seconds, more in [*records, (1.0, 0)]:
        t, sent = t + seconds, sent + more
        counter.add(t, sent, 0.0)
        last = sent
    assert counter.sent(np.array([0.0, t])).sum() == pytest.approx(last - records[0][1], abs=1e-6)


def test_late_records_lose_no_byte_of_a_rail() -> None:
    """The last record holds 0.294 s of line rate and its time is 0.1 s."""
    counters = PortCounters({"g0-r0": 8.0, "g1-r0": 8.0}, to_bits=8.0, sample_s=0.1)
    for name, sent in (("g0-r0", 0.3e9), ("g1-r0", 0.05e9)):
        counters.add(0.0, name, 0, 0)
        counters.add(0.1, name, sent, 0)
    edges = np.linspace(0.0, 0.4, 41)
    _, rates = counters.sent_gbps(["g0-r0", "g1-r0"], edges) or ([], np.zeros(0))
    seconds = np.diff(np.clip(edges, *counters.known))
    assert np.nansum(rates * seconds) == pytest.approx(0.35 * 8)
    assert counters.known == (0.0, pytest.approx(0.3 / 1.02)) and np.isnan(rates[-1])


def test_after_the_last_record_a_rate_holds_for_a_short_time() -> None:
    counter = Counter()
    counter.add(0.0, 0, 0)
    counter.add(1.0, 100, 0)
    assert counter.rates_at(1.2, 0.25) == (100.0, 0.0)
    assert counter.rates_at(1.3, 0.25) == counter.rates_at(1.2) == (0.0, 0.0)


def test_real_rates_and_the_share_of_the_line() -> None:
    counters = PortCounters({"g0-r0": 400.0, "g1-r0": 400.0}, to_bits=8 * 4000 / 2.0, sample_s=0.05)
    for name in ("g0-r0", "unknown"):
        counters.add(0.0, name, 0, 0)
        counters.add(1.0, name, 12.5e6, 6.25e6)
    assert counters.at(0.5) == {"g0-r0": {"tx_gbps": 200.0, "rx_gbps": 100.0, "share": 0.5}}
    edges = np.array([-1.0, 0.0, 0.5, 1.0, 1.25, 1.5])
    counters.sampled(1.25)
    lines, rates = counters.sent_gbps(["g0-r0", "g1-r0"], edges) or ([], np.zeros(0))
    assert lines == [400.0] and list(rates[1:4]) == [200.0, 200.0, 0.0]
    assert list(np.isnan(rates)) == [True, False, False, False, True], "nothing is known outside of the samples"
    assert counters.sent_gbps(["g1-r0"], np.array([0.0, 1.0])) is None
