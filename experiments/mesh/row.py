"""The row of one matching on a photonic mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from measure.results.row import ResultRow, Row


@dataclass(kw_only=True)
class MeshRow(ResultRow):
    """One matching on a mesh. Without a route all fields from ``gates`` on are empty; ports and gates are numbers."""

    width: Annotated[int, "columns of hexagons"]
    height: Annotated[int, "hexagons in the first column"]
    mesh_gates: Annotated[int, "gates of the mesh"]
    mesh_ports: Annotated[int, "external ports of the mesh"]
    used_ports: Annotated[Sequence[int], "ports in use"]
    used_ports_are: Annotated[str, "how the ports in use were chosen"]
    number: Annotated[int, "number of the matching"]
    pairs: Annotated[Sequence[Sequence[int]], "pairs of ports"]
    routable: Annotated[bool | None, "whether there is a route; empty: none was found in time"]
    proved: Annotated[bool, "whether it is proved that the route has the fewest gates, or that there is none"]
    seconds: Annotated[float, "time of the search, in s"]
    flips: Annotated[int | None, "gates that change their state from the matching before"] = None
    gates: Annotated[int | None, "gates on all paths"] = None
    path_min: Annotated[int | None, "gates of the shortest path"] = None
    path_mean: Annotated[float | None, "gates of a path, mean"] = None
    path_max: Annotated[int | None, "gates of the longest path"] = None
    loss_db: Annotated[float | None, "loss of the longest path"] = None
    latency_ps: Annotated[float | None, "latency of the longest path"] = None
    paths: Annotated[Sequence[Sequence[int]] | None, "gates of the path of every pair"] = None
    states: Annotated[Sequence[str] | None, "state of every gate: bar or cross"] = None
    cover: Annotated[int | None, "partial matchings of the cover that the row is of"] = None
    cover_bound: Annotated[int | None, "matchings that no cover has fewer than, proved"] = None
    cover_bound_is: Annotated[str, "what proves the bound of a cover"] = ""
    apart: Annotated[Sequence[Sequence[int]] | None, "pairs that no cover has, as nothing joins them (proved)"] = None


def routable_in_words(row: Row) -> str:
    """Whether a matching is routable, in words: ``yes``, ``no`` (proved), or ``not found`` (nothing proved)."""
    return {True: "yes", False: "no", None: "not found"}[row["routable"]]
