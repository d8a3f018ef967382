"""Lab ring-and-tree: replace each line `raise` by your law; README.md says what is asked.

`ranks` is a power of two. `wire_s` is the time of the whole buffer through one port, bytes / rate. `latency_s` is what
each message takes beside its bytes. All times are in seconds.
"""


def ring_s(ranks: int, wire_s: float, latency_s: float) -> float:
    """The time of a ring all-reduce."""
    raise NotImplementedError("write the law of a ring")


def tree_s(ranks: int, wire_s: float, latency_s: float) -> float:
    """The time of a tree all-reduce."""
    raise NotImplementedError("write the law of a tree")


def faster(ranks: int, wire_s: float, latency_s: float) -> str:
    """Which is faster: "ring" or "tree"."""
    raise NotImplementedError("compare both laws")


def dark_s(ranks: int, delay_s: float) -> float:
    """Seconds that a tree on circuits takes longer if a reconfiguration takes `delay_s` longer."""
    raise NotImplementedError("count the reconfigurations of a tree")
