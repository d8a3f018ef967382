"""The colour, marker and line style of everything that figures show: the only module that names colours.

A thing looks the same in every figure. Colours are those of Okabe and Ito (Color Universal Design), which colour-blind
readers can tell apart; markers, lines and hatches tell things of one table apart where print has no colours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

_BLACK, _ORANGE, _SKY, _GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
_YELLOW, _BLUE, _VERMILION, _PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
BLACK, WHITE, TEXT, FAINT, GREY, LIGHT = _BLACK, "#FFFFFF", "#333333", "#666666", "#BFBFBF", "#E8E8E8"
"""Neutral shades: of marks, backgrounds, text, footers, frames and fills."""
DARK = "#14171C"
"""The ground of a page in the dark."""
WARNING = _VERMILION
"""Of stamps: a run that is not faithful, or not complete."""
HEAT = "Blues"
"""The colour map of shares of a line rate."""
SOLID, DASHED, DOTTED = "-", (0, (4, 2)), (0, (1, 1.5))
"""Line styles without a meaning of their own."""


@dataclass(frozen=True)
class Look:
    """How a thing is drawn, and its name in legends: marker where it was measured, line of its model, hatch of bars."""

    name: str
    colour: str
    marker: str = ""
    dashes: Any = SOLID
    size: float = 4.5
    hatch: str = ""

    def named(self, name: str) -> Look:
        """The same look under another name."""
        return replace(self, name=name)


Looks = Mapping[str, Look]

# ---- fabrics, modes and policies -----------------------------------------------------------------------------------

ELECTRICAL = Look("electrical", _GREEN, "s", (0, (5, 2)), hatch="////")
PHOTONIC = Look("photonic", _BLUE, "o")
_ROTOR, _DEMAND = Look("rotor", _ORANGE, "P", (0, (3, 1, 1, 1))), Look("demand", _SKY, "X", (0, (2, 1)))
MODES: Looks = {
    "native": Look("native", _BLACK, "*", (0, (1, 1))),
    "electrical": ELECTRICAL,
    "one-shot": Look("one-shot", _PURPLE, "D", (0, (1, 1))),
    "on-demand": Look("on-demand", _VERMILION, "o"),
    "provisioned": Look("provisioned", _BLUE, "^", (0, (6, 1))),
    "deciding": Look("deciding", _ORANGE, "v", (0, (4, 1, 1, 1))),
    "rotor": _ROTOR,
    "demand": _DEMAND,
}
"""Modes of jobs on rails."""
POLICIES: Looks = {
    "electrical": ELECTRICAL,
    "rotor": replace(_ROTOR, size=6.0),
    "rotor-fixed": Look("rotor, fixed slots", _VERMILION, "v", (0, (4, 1, 1, 1))),
    "valiant": Look("two hops (Valiant)", _PURPLE, "p", (0, (1, 1))),
    "demand": _DEMAND.named("demand-aware"),
    "provisioned": Look("provisioned, two lanes", _BLUE, "^", (0, (5, 2))),
    "multi-hop": Look("multi-hop", _BLUE, ">", (0, (6, 1))),
    "phase": Look("phase", _BLUE, "^"),
}
"""Policies of an all-to-all, and of an optical trunk."""
FABRICS: Looks = {
    "electrical": ELECTRICAL,
    "photonic": PHOTONIC,
    "fat-tree": Look("fat tree", _GREEN, "h", (0, (5, 1, 1, 1)), 7.0),
    "rail-optimized": Look("rail-optimized", _PURPLE, "D", (0, (1, 1))),
}
BY_FORMULA = Look("rails, authors' formula", _VERMILION, "o")
"""Rails of packet switches whose parts are those of the formula of Opus' authors."""

# ---- collectives ---------------------------------------------------------------------------------------------------

WRONG = " (wrong rank)"
"""Ending of the name of StragglAR with a wrong prediction."""
AHEAD = " (provisioned)"
"""Ending of the name of an algorithm whose circuits are set up a round ahead."""
ALGORITHMS: Looks = {
    "ring": Look("Ring", _BLUE, "o", size=6.0),
    "recursive-halving-doubling": Look("RHD", _GREEN, "s", (0, (5, 2)), 4.0),
    "straggler-direct": Look("Direct", _PURPLE, "D", (0, (1, 1)), 4.0),
    "stragglar": Look("StragglAR", _VERMILION, "^", (0, (6, 1))),
    "stragglar-eager": Look("StragglAR, eager", _BLACK, "*", (0, (4, 1)), 6.0),
    "stragglar" + WRONG: Look("StragglAR, wrong rank", _ORANGE, "v", (0, (3, 1, 1, 1))),
    "stragglar" + AHEAD: Look("StragglAR, provisioned", _GREEN, "v", (0, (4, 1, 1, 1))),
    "bidirectional-ring": Look("two rings", _SKY, "8", (0, (2, 1))),
    "direct": Look("direct", _PURPLE, "d", (0, (1, 2))),
    "allpairs": Look("all pairs", _ORANGE, "<", (0, (4, 2))),
    "tree": Look("tree", _ORANGE, "P", (0, (3, 1, 1, 1))),
    "double-binary-tree": Look("double binary tree", _VERMILION, "X", (0, (6, 1))),
    "recursive-doubling": Look("recursive doubling", _GREEN, "h", (0, (5, 2))),
    "recursive-halving": Look("recursive halving", _GREEN, "p", (0, (5, 1, 1, 1))),
    "hierarchical": Look("hierarchical", _BLACK, "*", (0, (1, 1))),
    "pairwise": Look("pairwise", _BLUE, "<", (0, (2, 1))),
    "valiant": POLICIES["valiant"],
    "line": Look("line", _SKY, ">", (0, (4, 1, 1, 1))),
    "bidirectional-direct": Look("direct, both ways", _PURPLE, "H", (0, (4, 2))),
    "auto": Look("auto", _BLACK, "+", (0, (1, 2)), 6.5),
}
SPARE: tuple[Look, ...] = tuple(
    Look("", colour, marker, dashes)
    for colour, marker, dashes in (
        (_BLUE, "o", SOLID),
        (_VERMILION, "^", (0, (6, 1))),
        (_GREEN, "s", (0, (5, 2))),
        (_PURPLE, "D", (0, (1, 1))),
        (_ORANGE, "v", (0, (3, 1, 1, 1))),
        (_SKY, "P", (0, (2, 1))),
        (_BLACK, "X", (0, (4, 1))),
    )
)
"""For what has no look of its own, such as an algorithm of a user, or the values of a variable."""
SHAPES = "v<>^*hd8"
"""Markers of further series of one thing, which keep its colour."""

# ---- time: what a rank, a port or a recovery is doing --------------------------------------------------------------

DIMENSIONS: Looks = {
    "dp": Look("DP", _BLUE),
    "edp": Look("EDP", _VERMILION, dashes=(0, (6, 1))),
    "pp": Look("PP", _ORANGE, dashes=(0, (5, 2))),
    "ep": Look("EP", _GREEN, dashes=(0, (3, 1, 1, 1))),
    "tp": Look("TP", _SKY, dashes=(0, (2, 1))),
    "cp": Look("CP", _PURPLE, dashes=(0, (1, 1))),
    "world": Look("world", _YELLOW, dashes=(0, (1, 2))),
}
"""Dimensions of parallelism, by the traffic or the circuits of their groups."""
ACTIVITIES: Looks = {
    "compute": Look("compute", LIGHT),
    "transfer": Look("transfer", _BLUE),
    "ask": Look("request", _ORANGE, hatch="...."),
    "wait": Look("waits for its acknowledgement", _VERMILION, hatch="////"),
    "dark": Look("port dark", _BLACK),
    "rewired": Look("other circuits", GREY),
    "start": Look("starting circuits", "#F7F7F7"),
    "failed": Look("failed", _BLACK, hatch="xxxx"),
}
COSTS: Looks = {
    "compute": Look("computing", GREY, hatch="\\\\\\\\"),
    "late": Look("late after computing", _VERMILION, hatch="////"),
    "wire": Look("bytes on the wire", _BLUE),
    "transfer": Look("start and end of transfers", _SKY, hatch="...."),
    "ask": Look("requests to the controller", _ORANGE, hatch="xxxx"),
    "dark": Look("dark circuits", _BLACK, hatch="||||"),
    "peers": Look("waits for other members", _PURPLE, hatch="----"),
}
"""Kinds of cost by which measured and predicted steps differ."""
PARTS: Looks = {
    "fault": Look("chip killed", _BLACK),
    "detect": Look("detect", _VERMILION, dashes=(0, (1, 1))),
    "decide": Look("decide", _BLACK),
    "rewire": Look("rewire", _PURPLE, dashes=(0, (4, 2)), hatch="////"),
    "launch": Look("launch", GREY),
    "checkpoint": Look("checkpoint", _BLUE, hatch="...."),
    "load": Look("load", _SKY, hatch="\\\\\\\\"),
    "library": Look("library", _ORANGE, hatch="xxxx"),
    "data": Look("data", _YELLOW),
    "start": Look("start", "#8C8C8C", hatch="----"),
    "first step": Look("first step", _GREEN, dashes=(0, (6, 2, 1, 2))),
}
"""Parts of a recovery; the line is that of a mark where the part ends."""
MARKS: Looks = {
    "fault": Look("made to fail", _BLACK, "x"),
    "failed": ACTIVITIES["failed"],
    "replaced": Look("replaced", _BLUE, "o"),
    "stranded": Look("cannot go on", _VERMILION, "X", (0, (6, 1))),
    "port": Look("port failed or repaired", _ORANGE, "v", (0, (3, 1, 1, 1))),
    "manual": Look("done by a person", _PURPLE, "*", (0, (1, 1))),
    "act": Look("done by the timetable", _GREEN, "h", (0, (4, 1, 1, 1))),
    "launch": Look("job started", GREY, ">", (0, (4, 2))),
    "refused": Look("refused", _ORANGE, "s", (0, (5, 2))),
    "left": Look("connection lost", _SKY, "D", (0, (2, 1))),
    "recovered": Look("recovered", _GREEN, "^", (0, (6, 2, 1, 2))),
    "lost": Look("lost", _VERMILION, "d", DOTTED),
    "wrong": Look("wrong result", _VERMILION, "P", (0, (1, 2))),
}
"""Moments on a time line: failures, what was done about them, and what somebody asked for."""
TENANTS: Looks = {"job": Look("job", _BLUE, "o"), "neighbour": Look("second tenant", _ORANGE, "D", hatch="////")}
THROUGHPUT = Look("all ports", _BLUE)

# ---- allocation ----------------------------------------------------------------------------------------------------

SYSTEMS: Looks = {
    "contiguous": Look("contiguous", _VERMILION, "s"),
    "morphlux": Look("MORPHLUX", _BLUE, "o"),
}
FAILURES: Looks = {
    "migration": replace(SYSTEMS["contiguous"], name="TPU migration: whole rack", dashes=(0, (6, 1))),
    "block": Look("slice moves to another block", _ORANGE, "v", (0, (3, 1, 1, 1))),
    "kubernetes": Look("Kubernetes: whole server", _GREEN, "D", (0, (5, 2))),
    "morphlux": SYSTEMS["morphlux"].named("MORPHLUX: spare chip"),
    "ideal": Look("ideal switch", _BLACK, "x", DOTTED),
}

# ---- federated learning --------------------------------------------------------------------------------------------

SCHEDULERS: Looks = {
    "static": Look("static", _ORANGE, "s", hatch="////"),
    "random": Look("random", _VERMILION, "v", (0, (6, 1)), hatch="\\\\\\\\"),
    "random-client": Look("random-client", _PURPLE, "P", (0, (1, 1)), hatch="...."),
    "fifo": Look("fifo", _SKY, "D", (0, (2, 1)), hatch="xxxx"),
    "srsf": Look("srsf", _GREEN, "^", (0, (5, 2)), hatch="----"),
    "irs": Look("irs", _BLUE, "o"),
}
AGGREGATION: Looks = {
    "star": Look("star", GREY, hatch="////"),
    "authors": Look("authors", _ORANGE, hatch="...."),
    "fixed": Look("fixed", _BLUE),
}
MODELS: Looks = {
    "get": Look("gets the model", _SKY),
    "train": Look("trains", LIGHT),
    "push": Look("sends its update", _BLUE),
    "trunk": Look("has the trunk", _GREEN, hatch="////"),
}
"""What a client does with the model of a round, and a region with the trunk."""
UPDATES: Looks = {
    "updates_lost": Look("lost", _VERMILION),
    "updates_twice": Look("twice", _PURPLE, hatch="////"),
    "updates_late": Look("late", _SKY, hatch="...."),
}

# ---- photonic meshes -----------------------------------------------------------------------------------------------

PATHS = (_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY, _BLACK, "#882255")
"""Colours of paths of light."""
BAR, CROSS, GUIDE, PALE_NUMBER = "#D6D6D6", "#FFDF9E", "#BDBDBD", "#858585"
"""Cells in their two states, waveguides without light, and the numbers of ports without light."""
