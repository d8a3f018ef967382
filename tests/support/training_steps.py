"""Recipes of small training steps, changed key by key, and what tests read off the phases of a program."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from workloads.phases import Phase, phases
from workloads.program import Program
from workloads.training.recipe import Recipe, make_recipe


def changed_recipe(data: Mapping[str, Any], **changes: Any) -> Recipe:
    """The recipe of ``data`` with other values; a key is in one section only, which need not be named.

    The number of servers follows from the other sizes.
    """
    sections = {name: dict(value) for name, value in data.items() if isinstance(value, Mapping)}
    for name, field in Recipe.model_fields.items():
        keys = getattr(field.annotation, "model_fields", {})
        sections.setdefault(name, {}).update({key: changes.pop(key) for key in keys if key in changes})
    assert not changes
    sizes, fabric = sections["parallelism"], sections["fabric"]
    ranks = sizes.get("tp", 1) * sizes.get("ep", 1) * sizes.get("dp", 1) * sizes.get("pp", 1)
    fabric["servers"] = -(-ranks // fabric["gpus_per_server"])
    return make_recipe({"name": "small", **{name: value for name, value in sections.items() if value}})


def groups_of(program: Program, rank: int, phase: Phase) -> tuple[str, ...]:
    """The groups that ``rank`` uses in ``phase``, in order of first use."""
    return tuple(dict.fromkeys(op.group for op in program.communications(rank) if op.id in phase.operations))


def phase_changes(program: Program, rank: int) -> int:
    """Changes of dimension per steady step of ``rank``, from the last phase to the first of the next step included."""
    found = [phase.dimension for phase in phases(program, rank)]
    return sum(before != after for before, after in pairwise([*found, *found[:1]]))
