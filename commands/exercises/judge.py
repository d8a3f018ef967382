"""Whether a part of an exercise is done, found in a process of its own: a student's code may hang or take memory."""

from __future__ import annotations

import os
import resource
import signal
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from commands.attempt import STOPPED_EXIT_STATUS
from commands.exercises.exercise import Exercise, Missing, Part, fault
from railyard.errors import MachineError
from railyard.process.child import Child
from railyard.process.connection import raised_there
from railyard.process.parent import Parent, outcome_of
from railyard.signals import stop_on_signals

_MOST_BYTES = 4 << 30
"""Memory that a part may reserve: a list that grows for ever must not fill the machine's."""
_PATIENCE_S = 5.0
"""Seconds that a part which is stopped has to take its fabric down."""


def exercise_of(name: str) -> Exercise:
    """The exercise of a name, whose module is loaded now."""
    exercise = import_module(f"commands.exercises.{name.replace('-', '_')}").EXERCISE
    assert isinstance(exercise, Exercise)
    return exercise


def what_is_missing(exercise: Exercise, number: int, folder: Path, longest_s: float) -> str | None:
    """What is not right in the part ``number`` of the student's ``folder`` yet, in a sentence; None: it is done.

    ``MachineError`` if the machine lacks something that the check needs.
    """
    settings = {"name": exercise.name, "number": number, "folder": str(folder)}
    child = Child(__name__, settings, (), f"the check of {exercise.name}", patience_s=_PATIENCE_S)
    message = None
    try:
        child.begin()
        message = child.connection.next_message(longest_s)
    except MachineError:
        message = {"op": "result", "missing": f"{exercise.file} ended the check; it must not end its process"}
    finally:
        if message is None:  # in time, or by Ctrl-C
            with suppress(ProcessLookupError, MachineError):
                os.kill(child.pid, signal.SIGTERM)
        child.close()
    if message is None:
        return f"not done within {longest_s:g} s; is there an endless loop in {exercise.file}?"
    if message["op"] != "result":
        raise raised_there(message, "")
    missing = message["missing"]
    return None if missing is None else str(missing)


def _judged(part: Part, folder: Path, file: str) -> str | None:
    try:
        part.check(folder)
    except Missing as missing:
        return str(missing)
    except MachineError:
        raise
    except (Exception, SystemExit) as error:
        return fault(error, folder / file)
    return None


def main() -> int:
    """In the process of a part: check it, and tell the parent what is missing."""
    stop_on_signals()
    parent = Parent()
    exercise, given = exercise_of(parent.settings["name"]), parent.settings
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    try:
        missing = _judged(exercise.parts[given["number"]], Path(given["folder"]), exercise.file)
    except KeyboardInterrupt:
        return STOPPED_EXIT_STATUS
    except MachineError as error:
        parent.tell("error", **outcome_of(error, "check"))
        return 1
    parent.tell("result", missing=missing)
    return 0
