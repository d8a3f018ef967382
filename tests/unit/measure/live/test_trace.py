from __future__ import annotations

import pytest

from measure.live.trace import End, PortPair, Sighting, Trace, pair_of

US = 1000
LINKS = (
    (End("g0", "g0-r0", "rail0-eth1"), End("rail0", "rail0-eth1", "g0-r0", 1, True)),
    (End("g2", "g2-r0", "rail0-eth3"), End("rail0", "rail0-eth3", "g2-r0", 3, True)),
    (End("g3", "g3-r0", "rail0-eth4"), End("rail0", "rail0-eth4", "g3-r0", 4, True)),
    (End("s1", "s1-eth1", "s2-eth1", 1), End("s2", "s2-eth1", "s1-eth1", 1)),
    (End("h1", "h1-eth0", "s1-eth2"), End("s1", "s1-eth2", "h1-eth0", 2)),
    (End("h2", "h2-eth0", "s2-eth2"), End("s2", "s2-eth2", "h2-eth0", 2)),
    (End("h3", "h3-eth0", "s1-eth3"), End("s1", "s1-eth3", "h3-eth0", 3)),
)
ENDS = {end.interface: end for link in LINKS for end in link}


def seen(*places: str, sent_ns: int = 0) -> tuple[int, list[Sighting]]:
    """A probe at these interfaces 10, 20, ... us after it was sent; ``>`` before one that it leaves."""
    return sent_ns, [
        (sent_ns + at * 10 * US, place.removeprefix(">"), place[0] == ">") for at, place in enumerate(places, 1)
    ]


def test_a_hop_is_from_node_to_node_and_its_delay_is_the_median() -> None:
    usual = seen(">g0-r0", "rail0-eth1", ">rail0-eth3", "g2-r0")
    slow = seen(">g0-r0", ">g0-r1", ">g0-r1", "rail0-eth1", ">rail0-eth3", "g2-r0", sent_ns=5000)
    pair = pair_of("g0-r0", "g2-r0", [usual, slow, seen(">g0-r0"), usual], ENDS)
    assert pair == PortPair(
        "g0-r0",
        "g2-r0",
        (("g0-r0", "rail0 port 1", pytest.approx(20e-6)), ("rail0 port 3", "g2-r0", pytest.approx(20e-6))),  # type: ignore[arg-type]
        arrived=3,
    )


def test_a_flooded_probe_is_followed_from_its_end() -> None:
    flood = seen(">h1-eth0", "s1-eth2", ">s1-eth3", "h3-eth0", ">s1-eth1", "s2-eth1", ">s2-eth2", "h2-eth0", "h1-eth0")
    hops = pair_of("h1-eth0", "h2-eth0", [flood], ENDS).hops
    assert [hop[:2] for hop in hops] == [
        ("h1-eth0", "s1 port 2"), ("s1 port 1", "s2 port 1"), ("s2 port 2", "h2-eth0")
    ]  # fmt: skip
    assert [round(hop[2] * 1e6) for hop in hops] == [20, 40, 20]


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ((), "nothing leaves g0-r0; its link is down"),
        ((">g0-r0",), "g0-r0 sends it to rail0 port 1, where it does not arrive"),
        ((">g0-r0", "rail0-eth1"), "rail0 port 1 has no circuit that is up"),
        ((">g0-r0", "rail0-eth1", ">rail0-eth4"), "rail0 port 4 sends it to g3-r0"),
        ((">g0-r0", "rail0-eth1", ">rail0-eth4", "g3-r0"), "it arrives at g3-r0"),
        ((">g0-r0", "s1-eth1"), "s1 drops what comes in at port 1"),
    ],
)
def test_a_probe_that_does_not_arrive_says_where_it_ended(places: tuple[str, ...], words: str) -> None:
    assert pair_of("g0-r0", "g2-r0", [seen(*places)], ENDS) == PortPair("g0-r0", "g2-r0", ended=words)


def test_lanes_that_are_joined_are_listed_and_of_the_others_where_they_end() -> None:
    hops = (("g0-r0", "rail0 port 1", 12e-6), ("rail0 port 3", "g2-r0", 4.4e-6))
    no = "rail0 port 2 has no circuit"
    pairs = (
        PortPair("g0-r0", "g2-r0", hops, 9), PortPair("g0-r0", "g2-r1", ended="it arrives at g2-r0"),
        PortPair("g0-r1", "g2-r0", ended=no), PortPair("g0-r1", "g2-r1", ended=no),
    )  # fmt: skip
    assert str(Trace("g0", "g2", 10, pairs)).splitlines() == [
        "g0 to g2: 1 of 4 pairs of ports are joined",
        "  g0-r0 to g2-r0: 16 us in 2 hops (9 of 10 probes)",
        "          12 us  g0-r0 > rail0 port 1",
        "           4 us  rail0 port 3 > g2-r0",
        "  g0-r1: rail0 port 2 has no circuit",
    ]
