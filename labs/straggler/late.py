"""Lab straggler: replace each line `raise` by your law; README.md says what is asked.

`ranks` is a power of two. `wire_s` is the time of the whole buffer through one port, `late_s` how long after the others
the last rank arrives. All times are in seconds, and count from the arrival of the others.
"""


def ring_s(ranks: int, wire_s: float, late_s: float) -> float:
    """The time of a ring all-reduce with a late rank."""
    raise NotImplementedError("write the law of a ring")


def stragglar_s(ranks: int, wire_s: float, late_s: float) -> float:
    """The time of StragglAR, which knows which rank is late."""
    raise NotImplementedError("write the law of StragglAR")


def faster(ranks: int, wire_s: float, late_s: float) -> str:
    """Which is faster: "ring" or "stragglar"."""
    raise NotImplementedError("compare both laws")


def adds_s(rank: int, late_s: float) -> float:
    """Seconds that a step of `smoke` on packet switches takes longer if `rank` (0 to 7) is late by `late_s`."""
    raise NotImplementedError("write the law of a late rank")
