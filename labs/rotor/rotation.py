"""Lab rotor: replace each line `raise` by your law; README.md says what is asked.

`ranks` is even. `pair_s` is the time of what one rank sends to one other through a port, bytes / rate. `delay_s` is the
time of a reconfiguration. All times are in seconds.
"""


def rotor_s(ranks: int, pair_s: float, delay_s: float) -> float:
    """The time of an all-to-all over circuits that rotate."""
    raise NotImplementedError("write the law of a rotation")


def ring_s(ranks: int, pair_s: float) -> float:
    """The time of an all-to-all over a ring of circuits that stands, on two ports of half the rate."""
    raise NotImplementedError("write the law of a ring that stands")


def faster(ranks: int, pair_s: float, delay_s: float) -> str:
    """Which is faster: "rotor" or "ring"."""
    raise NotImplementedError("compare both laws")


def mode_for_experts(delay_s: float) -> str:
    """In which mode a step of job `moe-smoke` is shorter: "rotor" or "on-demand"."""
    raise NotImplementedError("read the break-even from predictions")
