"""What an exercise is: a file that a student completes, and parts of the task, each checked for points."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railyard.errors import RailyardError
from railyard.plugin import load_file


class Missing(Exception):
    """A sentence on what is not right yet; the check of a part raises it."""


@dataclass(frozen=True)
class ExercisePart:
    """A part of the task. ``check`` takes the student's folder, and raises ``Missing`` unless the part is done.

    It runs in a process of its own under a limit of time. Any other error counts as one of the student's file, except a
    ``MachineError``, which ends the command.
    """

    points: int
    text: str
    check: Callable[[Path], None]


@dataclass(frozen=True)
class Exercise:
    """A task in the folder ``labs/NAME``; ``file`` is the one that the student edits.

    ``root``: whether a check needs root. ``minutes``: how long a person needs for the task.
    """

    name: str
    title: str
    file: str
    root: bool
    parts: tuple[ExercisePart, ...]
    minutes: int = 20


def student_code(file: Path, name: str) -> Any:
    """The function, class or value ``name`` of the student's ``file``; ``Missing`` if the file does not define it."""
    module = load_file(str(file), "check")
    if not hasattr(module, name):
        raise Missing(f"{file.name} does not define {name}")
    return getattr(module, name)


def last_sentence(log: Path, folder: Path) -> str:
    """The last line in the ``log`` of a program that was given the student's ``folder``, which it need not repeat."""
    lines = log.read_text("utf-8", "replace").replace(f"{folder}/", "").split("\n")
    return next((line.removeprefix("railyard: ") for line in reversed(lines) if line.strip()), "it said nothing")


def fault(error: BaseException, file: Path) -> str:
    """A sentence about an ``error`` that the student's ``file`` caused, with its line there where that is known."""
    cause = error.__cause__ if isinstance(error, RailyardError) and error.__cause__ else error
    if isinstance(cause, RailyardError):
        return str(cause)
    if isinstance(cause, SystemExit):
        text = "it ends the program; leave out exit()"
    else:
        text = ": ".join(filter(None, (type(cause).__name__, " ".join(str(cause).split()))))
    lines = [frame.lineno for frame in traceback.extract_tb(cause.__traceback__) if frame.filename == str(file)]
    if isinstance(cause, SyntaxError) and cause.filename == str(file):
        lines, text = [cause.lineno], f"{type(cause).__name__}: {cause.msg}"
    return f"line {lines[-1]} of {file.name}: {text}" if lines else f"{file.name}: {text}"
