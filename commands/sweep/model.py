"""The model's rows of points, as ``railyard predict`` gives them, by one process that stays for all points.

As a program it is that process: a line of JSON for each point on standard input, and one with its rows on output.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.registry import find
from experiments.settings import validated
from measure.results.plain import plain
from measure.results.row import Row
from railyard.child import Child, die_with_parent, read_line, read_settings
from railyard.errors import MachineError, RailyardError

_LOOK_EVERY_S = 60.0


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
            self._child.tell(json.dumps([experiment, values]))
            line = ""
            while not line and not self._child.has_ended:
                line = self._child.line(_LOOK_EVERY_S)
            if line:
                return Predicted(**json.loads(line))
        except MachineError as error:
            self.close()
            return Predicted(status=error.exit_status, said=str(error), log=f"{error}\n")
        self.close()
        said = "the process of the model was killed, perhaps for lack of memory"
        return Predicted(status=MachineError.exit_status, said=said, log=f"{said}\n")

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def __enter__(self) -> ModelProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve() -> None:
    die_with_parent()
    read_settings()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an experiment prints is no answer
    out.write("ready\n")
    out.flush()
    for line in iter(read_line, ""):
        if line == "stop\n":
            return
        found = predicted(*json.loads(line))
        out.write(json.dumps(found.__dict__) + "\n")
        out.flush()


if __name__ == "__main__":
    _serve()
