"""What the model says, and whether functions that a student wrote say the same: for the labs that need no root."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from commands.exercises.exercise import Missing, student_code
from experiments.registry import find
from experiments.settings import validated
from railyard.validation import shown

Points = Callable[[], Iterable[tuple[tuple[float, ...], Mapping[str, float]]]]
"""Gives arguments for functions of a student, with the model's numbers for them by name."""


def predicted(name: str, **settings: Any) -> list[Mapping[str, Any]]:
    """The rows of a prediction of the experiment ``name``; ``settings`` are keys of an experiment file.

    Parts that ask for the same rows share them.
    """
    return _rows(name, json.dumps(settings))


@cache
def _rows(name: str, keys: str) -> list[Mapping[str, Any]]:
    kind, settings = find(name), json.loads(keys)
    experiment = kind(validated(kind.Settings, kind.adapt(settings, settings)))
    experiment.check()
    return [row.to_json() for row in experiment.predict()]


def gives(name: str, points: Points, number: str, within: float) -> Callable[[Path], None]:
    """A check that the student's function ``name`` gives the model's ``number``, to a share of it."""

    def check(file: Path) -> None:
        law = student_code(file, name)
        for arguments, model in points():
            value, right = law(*arguments), model[number]
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise Missing(f"{_call(name, arguments)} returns {shown(value)}; return a number")
            if abs(value - right) > within * abs(right) + 1e-9:
                raise Missing(f"{_call(name, arguments)} returns {value:.4g}; the model gives {right:.4g}")

    return check


def chooses(name: str, points: Points, clear: float) -> Callable[[Path], None]:
    """A check that it returns the name of the least number; points count where the others are ``clear`` times it."""

    def check(file: Path) -> None:
        choice = student_code(file, name)
        for arguments, model in points():
            best, second = sorted(model, key=lambda key: model[key])[:2]
            value = choice(*arguments)
            if value != best and model[second] > clear * model[best]:
                numbers = ", ".join(f"{key} {number:.4g}" for key, number in model.items())
                raise Missing(f"{_call(name, arguments)} returns {shown(value)}; the model gives {numbers}")

    return check


def _call(name: str, arguments: Iterable[float]) -> str:
    return f"{name}({', '.join(f'{value:.6g}' for value in arguments)})"
