from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.metrics.checks import Limits, Verdict, with_machine
from measure.metrics.fidelity import judge
from measure.metrics.metrics import measure_point
from measure.metrics.underlay import Underlay, UnderlayNeeds, ip_version, refusals, shared_refusals, underlay_event

GOOD = Underlay(0.2, 0.4, 0.02, loss_share=0.0, datagrams=200, packet_bytes=9050, tcp_mbps=10000.0)
NEEDS = UnderlayNeeds("a", "b", mtu=9000, demand_mbps=800.0)


def _verdict(job: Any) -> Verdict:
    events = job.timeline()
    return judge(job.point, events, measure_point(job.point, events))


def _names(verdict: Verdict) -> list[str]:
    return [check.name for check in verdict.checks]


def test_a_network_that_does_is_not_refused() -> None:
    assert refusals(NEEDS, GOOD) == []
    assert refusals(NEEDS, replace(GOOD, tcp_mbps=1000.0, loss_share=0.001, round_trip_ms=5.0)) == []


@pytest.mark.parametrize(
    ("lacks", "sentence"),
    [
        (
            {"packet_bytes": 1500},
            "the network between a and b passes packets of at most 1500 bytes; links of MTU 9000 need 9050: raise the "
            "MTU of the interfaces there, or run with --mtu 1450",
        ),
        (
            {"packet_bytes": 600},
            "the network between a and b passes packets of at most 600 bytes; links of MTU 9000 need 9050: raise the "
            "MTU of the interfaces there",
        ),
        (
            {"loss_share": 0.005},
            "the network between a and b lost 0.50% of 200 packets; at most 0.1% may be lost: look for a faulty or "
            "overloaded link there",
        ),
        (
            {"tcp_mbps": 940.0},
            "the network between a and b carries 940 Mb/s; the links cut there may ask for 800 Mb/s, for which it must "
            "carry 1000: lower the rate of the links, or cut fewer with another --placement",
        ),
        (
            {"round_trip_ms": 12.34},
            "the network between a and b takes 12.3 ms there and back; at most 5 ms is allowed: take machines that are "
            "nearer to each other",
        ),
    ],
)
def test_what_a_network_lacks_is_said_in_one_sentence(lacks: dict[str, Any], sentence: str) -> None:
    assert refusals(NEEDS, replace(GOOD, **lacks)) == [sentence]


def test_what_the_pairs_of_a_machine_ask_for_adds_up() -> None:
    pairs = [(UnderlayNeeds(a, b, 9000, 300.0), replace(GOOD, tcp_mbps=1000.0)) for a, b in ("ab", "ac", "bc", "ad")]
    assert shared_refusals(pairs[:3]) == [] == shared_refusals([(NEEDS, replace(GOOD, tcp_mbps=100.0))])
    assert all(refusals(*pair) == [] for pair in pairs)
    assert shared_refusals(pairs) == [
        "the links cut at a may ask for 90% of what its network carries to 3 machines; at most 80% is allowed: lower "
        "the rate of the links, or cut fewer with another --placement"
    ]


def test_over_ipv6_packets_are_longer() -> None:
    assert UnderlayNeeds("a", "b", 9000, 1.0).packet_bytes == 9050
    assert UnderlayNeeds("a", "b", 9000, 1.0, ip_version("2001:db8::1")).packet_bytes == 9070
    assert (ip_version("fe80::1%eth0"), ip_version("192.0.2.1")) == (6, 4)
    assert "need 9070" in refusals(replace(NEEDS, version=6), GOOD)[0]


@given(
    mtu=st.integers(576, 9216),
    packet=st.integers(576, 9300),
    demand=st.floats(0, 1e6),
    rate=st.floats(0, 1e6),
    loss=st.floats(0, 1),
    trip=st.floats(0, 1e3),
)
def test_each_need_that_is_not_met_is_one_sentence(
    mtu: int, packet: int, demand: float, rate: float, loss: float, trip: float
) -> None:
    found = Underlay(trip, trip, 0.0, loss, 200, packet, rate)
    lacking = (packet < mtu + 50, loss > 0.001, rate < demand / 0.8, trip > 5)
    assert len(refusals(UnderlayNeeds("a", "b", mtu, demand), found)) == sum(lacking)


def _underlay(job: Any, **more: Any) -> None:
    """A probe of two pairs before and after the steps; ``more`` is what that of the second pair found after them."""
    good = replace(GOOD, tcp_mbps=1000.0)
    for t, found in ((job.start, good), (job.end, replace(good, **more))):
        job.events.append(underlay_event(t, UnderlayNeeds("m0", "m1", 9000, 400.0), good))
        job.events.append(underlay_event(t, UnderlayNeeds("m0", "m2", 9000, 400.0), found))


def test_on_one_machine_nothing_is_judged_that_it_has_not(make_point: Any, make_job: Any) -> None:
    names = _names(_verdict(make_job(make_point()).with_samples()))
    assert not {"underlay loss", "underlay rate", "clock uncertainty"} & set(names)
    with_it = make_job(make_point()).with_samples()
    _underlay(with_it)
    with_it.add(with_it.end, "link", "clock", machine="m1", offset_s=0.0, uncertainty_s=5e-5)
    events = with_machine(with_it.timeline(), "m1")
    verdict = judge(with_it.point, events, measure_point(with_it.point, events))
    assert verdict.faithful, str(verdict)
    more = [name for name in _names(verdict) if name not in names]
    assert more == ["underlay loss", "underlay rate", "clock uncertainty"]
    assert all(check.cause for check in verdict.checks if check.name in more)


@pytest.mark.parametrize(
    ("more", "name", "value", "says"),
    [
        (
            {"loss_share": 0.02},
            "underlay loss",
            0.02,
            "the network between m0 and m2 lost 2.00% of the packets (limit ",
        ),
        (
            {"tcp_mbps": 800.0},
            "underlay rate",
            0.9,
            "cut links may ask for 90% of what the network of m0 carries (limit 80%)",
        ),
        ({"tcp_mbps": 0.0}, "underlay rate", 4e5, "% of what the network of m0 carries (limit 80%)"),
    ],
)
def test_a_network_that_got_worse(
    make_point: Any, make_job: Any, more: dict[str, float], name: str, value: float, says: str
) -> None:
    job = make_job(make_point()).with_samples()
    _underlay(job, **more)
    failed = _verdict(job).failed
    assert [check.name for check in failed] == [name]
    assert failed[0].value == pytest.approx(value, rel=1e-5) and says in failed[0].says


def test_a_network_that_was_probed_once_was_not_measured(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point()).with_samples()
    _underlay(job)
    job.events.remove(next(e for e in job.events if e.get("b") == "m2"))
    failed = _verdict(job).failed
    assert [check.name for check in failed] == ["underlay loss", "underlay rate"]
    assert all("between m0 and m2 was not probed before and after the steps" in check.says for check in failed)


@pytest.mark.parametrize(
    ("delay_s", "uncertainty_s", "ok"),
    [
        (0.04, 0.004, True),
        (0.04, 0.0041, False),
        (0.001, 0.0002, True),  # a tenth of the delay is less, but nothing below 0.2 ms is judged
        (0.001, 0.00021, False),
        (0.0, 0.0002, True),
        (0.0, 0.00021, False),
    ],
)
def test_the_clock_of_each_machine_is_known_well_enough(
    make_point: Any, make_job: Any, delay_s: float, uncertainty_s: float, ok: bool
) -> None:
    job = make_job(make_point("on-demand", delay_s))
    job.add(job.start, "link", "clock", machine="m1", offset_s=-uncertainty_s / 4, uncertainty_s=uncertainty_s * 3 / 4)
    job.add(job.end, "link", "clock", machine="m2", offset_s=0.0, uncertainty_s=1e-5)
    check = next(check for check in _verdict(job).checks if check.name == "clock uncertainty")
    assert check.ok is ok and check.value == pytest.approx(uncertainty_s) and check.cause
    assert check.limit == max(Limits().clock_floor_s, delay_s / 10)
    assert check.says.startswith(
        f"the clock of m1 may be off by {uncertainty_s * 1e3:.3g} ms of wall-clock time (limit "
    )
