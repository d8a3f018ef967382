"""Lab ring-and-tree: when a tree beats a ring, by ranks, bytes and latency, and what its circuits cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from commands.exercises.exercise import Exercise, ExercisePart
from commands.exercises.model import chooses, gives, predicted
from railyard.scale import goodput_bytes_per_s

_GBPS, _MTU = 1.0, 4200
_SIZES = tuple(4096 << step for step in range(0, 11, 2))


def _times_s(ranks: int, sizes: Sequence[int], **fabric: Any) -> dict[tuple[str, int], float]:
    """The model's times by algorithm and bytes."""
    fabric = {"port_gbps": _GBPS, "mtu": _MTU, **fabric}
    rows = predicted("collective", algorithms=["ring", "tree"], ranks=ranks, sizes=sizes, fabric=fabric)
    return {(row["algorithm"], row["bytes"]): row["predicted_time_s"] for row in rows}


def _points() -> Iterator[tuple[tuple[float, ...], dict[str, float]]]:
    """The latency of a message is that of this machine, by the model's time of the smallest ring."""
    for ranks in (4, 16):
        times_s = _times_s(ranks, _SIZES)
        wires_s = [size / goodput_bytes_per_s(_GBPS, _MTU) for size in _SIZES]
        latency_s = times_s["ring", _SIZES[0]] / (2 * (ranks - 1)) - wires_s[0] / ranks
        for size, wire_s in zip(_SIZES, wires_s, strict=True):
            yield (ranks, wire_s, latency_s), {name: times_s[name, size] for name in ("ring", "tree")}


def _dark() -> Iterator[tuple[tuple[float, ...], dict[str, float]]]:
    for ranks in (4, 16):
        circuits = [{"kind": "ocs", "reconfiguration_delay_ms": delay_ms} for delay_ms in (10, 35)]
        short_s, long_s = (_times_s(ranks, [65536], **fabric)["tree", 65536] for fabric in circuits)
        yield (ranks, 0.025), {"dark": long_s - short_s}


PARTS = (
    ExercisePart(2, "the time of a ring", gives("ring_s", _points, "ring", 0.05)),
    ExercisePart(2, "the time of a tree", gives("tree_s", _points, "tree", 0.2)),
    ExercisePart(3, "the faster of both, at sizes that you have not seen", chooses("faster", _points, 1.2)),
    ExercisePart(3, "what the circuits of a tree add", gives("dark_s", _dark, "dark", 0.02)),
)
EXERCISE = Exercise("ring-and-tree", "When a tree beats a ring", "laws.py", PARTS)
