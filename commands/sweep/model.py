"""The model's rows of points, as ``railyard predict`` gives them, by one process that stays for all points.

As a program it is that process.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.registry import find
from experiments.settings import validated
from measure.results.plain import plain
from measure.results.row import Row
from railyard.errors import MachineError, RailyardError
from railyard.process.child import Child
from railyard.process.parent import Parent
from railyard.process.start import die_with_parent

_DAYS_S = 1e6


@dataclass(frozen=True)
class Predicted:
    """The rows of a point, or the exit ``status`` of the error in their place: what it ``said``, and its ``log``."""

    rows: list[Row] = field(default_factory=list)
    status: int = 0
    said: str = ""
    log: str = ""


def predicted_rows(experiment: str, values: Mapping[str, Any]) -> list[Row]:
    """The rows that ``railyard predict`` prints for an experiment file with these values."""
    kind = find(experiment)
    found = kind(validated(kind.Settings, kind.adapt(dict(values), {})))
    found.check()
    rows: list[Row] = plain([{**row.to_json(), "experiment": found.name} for row in found.predict()])
    return rows


def predicted(experiment: str, values: Mapping[str, Any]) -> Predicted:
    """The rows of a point, or its error: a wrong point does not end the process that predicts others."""
    try:
        return Predicted(predicted_rows(experiment, values))
    except RailyardError as error:
        return Predicted(status=error.exit_status, said=str(error), log=f"railyard: {error}\n")
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        return Predicted(status=1, said=said, log=traceback.format_exc())


class ModelProcess:
    """A process that predicts one point after another, started for the first one; a context manager."""

    def __init__(self) -> None:
        self._child: Child | None = None

    def predict(self, experiment: str, values: Mapping[str, Any]) -> Predicted:
        """The rows of a point, or its error; if the process is killed meanwhile, the next point has a new one."""
        try:
            if self._child is None:
                self._child = Child(__name__, {}, (), "the process of the model").start()
            return Predicted(**self._child.call("predicted", timeout_s=_DAYS_S, experiment=experiment, values=values))
        except MachineError as error:
            gone = self._child is not None and self._child.connection.ended
            self.close()
            said = "the process of the model was killed, perhaps for lack of memory" if gone else str(error)
            return Predicted(status=error.exit_status, said=said, log=f"{said}\n")

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def __enter__(self) -> ModelProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main() -> None:
    die_with_parent()
    parent = Parent()
    parent.operations = {"predicted": predicted}
    parent.ready()
    parent.serve()
