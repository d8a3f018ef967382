"""The manifest: all data needed to read a results folder and to repeat the run."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from railyard import __version__
from railyard.checkout import ROOT
from railyard.errors import shortened
from railyard.process.start import run_program
from railyard.scale import Scale
from railyard.validation import Name, Whole, from_plain
from topos.kernel.needs import open_vswitch_version
from topos.plan import FabricPlan
from workloads.program import Group

FORMAT = 2
MARK = "railyard_results"
"""Manifest key with the format of the folder, by which Railyard recognizes its own folders."""
REST = "rest"
"""Manifest key with the address of the REST interface (``IP:PORT``) from the first fabric to the end of the run."""
TIME = "%Y-%m-%dT%H:%M:%S%z"
"""Form of the moments in a manifest: ``written``, when the run began, and ``ended_at``."""
_PACKAGES = (
    "ryu",
    "os-ken",
    "eventlet",
    "mininet",
    "pyroute2",
    "pydantic",
    "numpy",
    "matplotlib",
    "scapy",
    "rich",
    "ortools",
)


class _Experiment(BaseModel):
    experiment: Name
    repeats: int = Field(1, ge=1)


class _Scale(BaseModel):
    rate: float = Field(ge=1e-9, le=1)
    time: float = Field(ge=1e-9, lt=1e9)


class _Git(BaseModel):
    commit: str
    changed: bool


class _Input(BaseModel):
    file: str
    bytes: Whole
    sha256: str


class _Attempt(BaseModel):
    piece: str
    place: Whole
    repeat: Whole
    points: list[Whole]
    faithful: bool | None
    disturbed: bool


class _Act(BaseModel):
    point: Whole
    title: str
    acts: Whole
    first: str


class Manifest(BaseModel):
    """The keys of a manifest on which readers rely, and others. Plans and groups have types of their own."""

    written: str
    experiment: _Experiment
    seed: int
    scale: _Scale
    versions: dict[str, str]
    plans: dict[str, dict[str, Any]]
    groups: list[dict[str, Any]]
    calibration: dict[str, Any] | None = None
    git: _Git | None = None
    machine: dict[str, Any] = {}
    planned: Whole | None = None
    process: Whole | None = None
    command: str | None = None
    inputs: list[_Input] = []
    attempts: list[_Attempt] = []
    acts: list[_Act] = []
    ended: str | None = None
    ended_at: str | None = None
    predicted: bool = False


def build_manifest(
    *,
    experiment: Mapping[str, Any],
    seed: int,
    scale: Scale,
    plans: Iterable[FabricPlan],
    groups: Mapping[str, Group],
    calibration: Mapping[str, Any] | None = None,
    datapath: str = "",
    openvswitch: str = "",
    link_delay: str = "none",
    **more: Any,
) -> dict[str, Any]:
    """The manifest of a run as plain data.

    ``experiment`` is the resolved experiment, ``plans`` one plan for each fabric that its modes use. ``datapath`` is
    ``bpf`` or ``ovs``, ``openvswitch`` the version in use (that of the system if empty), ``link_delay`` how
    delayed links hold packets (``netem``, ``relay`` or ``none``). ``more`` is added as it is and must be plain data.
    """
    return {
        MARK: FORMAT,
        "written": time.strftime(TIME),
        "experiment": dict(experiment),
        "seed": seed,
        "scale": asdict(scale),
        "calibration": dict(calibration) if calibration is not None else None,
        "datapath": datapath,
        "link_delay": link_delay,
        "versions": versions(openvswitch),
        "git": git_commit(ROOT),
        "plans": {plan.fabric: asdict(plan) for plan in plans},
        "groups": [asdict(group) for group in groups.values()],
        **more,
    }


def other_version(manifest: Mapping[str, Any]) -> str | None:
    """The advice about results that another version wrote and this one cannot read; None for those of this version."""
    known = manifest.get("versions")
    version = known.get("railyard") if isinstance(known, Mapping) else None
    if not isinstance(version, str) or version == __version__:
        return None
    return f"Railyard {shortened(version)} wrote it, and this is {__version__}: use that version, or run it again"


def versions(openvswitch: str = "") -> dict[str, str]:
    """Versions of kernel, Open vSwitch, Python and the packages of a run, and the machine, where available."""
    cores = os.cpu_count()
    found = {
        "railyard": __version__,
        "kernel": platform.release(),
        "machine": f"{platform.machine()}, {cores} core{'s' * (cores != 1)}",
        "python": platform.python_version(),
        "openvswitch": openvswitch or open_vswitch_version(),
        **_packages(),
    }
    return {name: version for name, version in found.items() if version}


@cache
def _packages() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def git_commit(root: Path) -> dict[str, Any] | None:
    """Commit of the source and whether tracked files but those of ``docs`` differ from it; None outside a checkout.

    Without optional locks git does not write its index, which would be root's file in the checkout of a user.
    """
    if not (root / ".git").exists():
        return None
    commit = _first_line([*_git(root), "rev-parse", "HEAD"])
    changed = _first_line([*_git(root), "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)docs"])
    return {"commit": commit, "changed": bool(changed)} if commit else None


def commits_since(root: Path, commit: str, paths: Sequence[str]) -> int | None:
    """How many commits after ``commit`` changed ``paths`` of the checkout; None where git does not know."""
    if not (root / ".git").exists():
        return None
    count = _first_line([*_git(root), "rev-list", "--count", "--end-of-options", f"{commit}..HEAD", "--", *paths])
    return int(count) if count else None


def _git(root: Path) -> list[str]:
    return ["git", "--no-optional-locks", "-c", f"safe.directory={root}", "-C", str(root)]


def _first_line(command: list[str]) -> str:
    done = run_program(command, 10)
    return done.out.split("\n", 1)[0].strip() if done.status == 0 else ""


def left_out(manifest: Mapping[str, Any]) -> set[int]:
    """The points that no row counts: measured again, or disturbed where another repeat of the piece was not.

    This is the rule of ``measure.results.combine``, read from ``attempts``; folders without them have no such points.
    """
    attempts: Sequence[Mapping[str, Any]] = manifest.get("attempts", ())
    counting = {point for points in counting_points(manifest) for point in points}
    return {point for one in attempts for point in one["points"]} - counting


def counting_points(manifest: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """The points that rows count, those together that are one point in several repeats; empty without ``attempts``.

    Where the repeats of a piece differ in their number of points, all of the piece stand together.
    """
    last: dict[Any, dict[int, Mapping[str, Any]]] = {}
    attempts: Sequence[Mapping[str, Any]] = manifest.get("attempts", ())
    for one in attempts:
        last.setdefault(one["place"], {})[one["repeat"]] = one
    found: list[tuple[int, ...]] = []
    for repeats in last.values():
        good = [one for one in repeats.values() if not one["disturbed"]]
        counting = [one["points"] for one in good or repeats.values()]
        alike = len({len(points) for points in counting}) == 1
        found += zip(*counting, strict=True) if alike else [tuple(point for points in counting for point in points)]
    return found


def scale_of(manifest: Mapping[str, Any]) -> Scale:
    return Scale(**manifest["scale"])


def plans_of(manifest: Mapping[str, Any]) -> dict[str, FabricPlan]:
    return {fabric: from_plain(FabricPlan, plan, "a fabric plan") for fabric, plan in manifest["plans"].items()}


def groups_of(manifest: Mapping[str, Any]) -> dict[str, Group]:
    groups = [from_plain(Group, group, "a group") for group in manifest["groups"]]
    return {group.name: group for group in groups}
