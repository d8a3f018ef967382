"""What an exercise is: a file that a student completes, and parts of the task, each checked for points."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railyard.errors import MachineError, RailyardError
from railyard.plugin import error_in, load_file


class Missing(Exception):
    """A sentence on what is not right yet; the check of a part raises it."""


@dataclass(frozen=True)
class ExercisePart:
    """A part of the task. ``check`` raises ``Missing`` unless the part is done.

    Any other error counts as one of the student's file, except a ``MachineError``, which ends the command.
    """

    points: int
    text: str
    check: Callable[[Any], None]


@dataclass(frozen=True)
class Exercise:
    """A task in the folder ``labs/NAME``; ``file`` is the one that the student edits.

    ``root``: whether a check needs root. ``minutes``: how long a person needs for the task. ``begin`` takes the path of
    the student's file, and its context gives what all checks take, by default that path; it raises as a check does.
    """

    name: str
    title: str
    file: str
    parts: tuple[ExercisePart, ...]
    root: bool = False
    minutes: int = 20
    begin: Callable[[Path], AbstractContextManager[Any]] = nullcontext


def student_code(file: Path, name: str) -> Any:
    """The function, class or value ``name`` of the student's ``file``; ``Missing`` if the file does not define it."""
    module = load_file(str(file), "check")
    if not hasattr(module, name):
        raise Missing(f"{file.name} does not define {name}")
    return getattr(module, name)


def missing_in(check: Callable[[], None], file: Path) -> str:
    """The sentence of a ``check`` on what is missing, or on an error by the student's ``file``; empty: neither.

    A ``MachineError`` is raised.
    """
    try:
        check()
    except MachineError:
        raise
    except (Exception, SystemExit) as error:
        cause = error.__cause__ if isinstance(error, RailyardError) and error.__cause__ else error
        if isinstance(cause, (RailyardError, Missing)):
            return str(cause)
        return error_in(cause, file) + "; leave out exit()" * isinstance(cause, SystemExit)
    return ""
