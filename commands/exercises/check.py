"""``railyard check``: lists the labs, writes a fresh one, or marks what a student has done, part by part."""

from __future__ import annotations

import argparse
import json
import os
import resource
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from commands.command_process import last_line, run_command
from commands.exercises.exercise import Exercise, Missing, fault
from experiments.parser import Parser, folder
from railyard.checkout import ROOT, railyard_as_root
from railyard.errors import ConfigError, MachineError, nearest
from railyard.ownership import make_folder, open_text, temporary_folder
from railyard.reading import read_text

NAMES = (
    "learning-switch",
    "dark-time",
    "ring-and-tree",
    "straggler",
    "rotor",
    "opus-slope",
    "failover",
    "hide-reconfiguration",
)
"""The exercises, in the order in which a course would take them; each is a module here."""
LABS = ROOT / "labs"
"""The folder that has the text, the start file and the hints of each."""
DESCRIPTION = """\
Mark a lab that you work on, part by part; without arguments, list the labs.

railyard check                    # the labs
railyard check --copy dark-time   # writes a fresh folder dark-time
railyard check dark-time          # points for what you have done there"""
CHECK_S = 60.0
"""Longest duration of the check of all parts."""
_MOST_MEMORY = 2 << 30
_MOST_LOG = 64 << 20
_MOST_BYTES = 1 << 20
_COLUMNS = 80


def main(arguments: Sequence[str]) -> int:
    """List, copy or check labs; 0 if all points are there, 1 if not."""
    parser = Parser(prog="railyard check", description=DESCRIPTION)
    parser.add_argument("folder", nargs="?", type=folder, metavar="FOLDER", help="your folder, named as its lab")
    parser.add_argument("--copy", metavar="NAME", help="write the folder NAME of a lab into the working directory")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)  # how a check starts the process of a part
    options = parser.read(arguments)
    if options.copy is not None:
        return _copy(_named(options.copy, "--copy"))
    if options.folder is None:
        return _list()
    place = options.folder.resolve()
    exercise = _named(place.name, "check")
    return _check(exercise, place) if options.part is None else _judge(exercise, options.part, place)


def _list() -> int:
    print(f"{'lab':<20} {'min':>3} {'root':<4} what it is about")
    for exercise in (_named(name, "check") for name in NAMES):
        print(f"{exercise.name:<20} {exercise.minutes:>3} {'yes' if exercise.root else 'no':<4} {exercise.title}")
    print("\nrailyard check --copy NAME writes its folder; README.md there says what to do.")
    return 0


def _named(name: str, key: str) -> Exercise:
    if name not in NAMES:
        raise ConfigError(f"{name} is no lab{nearest(name, NAMES) or '; railyard check lists them'}", key=key)
    exercise = import_module(f"commands.exercises.{name.replace('-', '_')}").EXERCISE
    assert isinstance(exercise, Exercise)
    return exercise


def _copy(exercise: Exercise) -> int:
    """Write the files of a lab into a new folder of its name, which belong to the caller of sudo."""
    target = Path(exercise.name)
    if target.exists():
        raise ConfigError("exists already; move it away, or work on in it", source=str(target))
    make_folder(target)
    for path in sorted(path for path in LABS.joinpath(exercise.name).iterdir() if path.is_file()):
        with open_text(target / path.name, "w") as file:
            file.write(read_text(path, _MOST_BYTES, "a file of a lab"))
    print(f"folder {target}: read README.md, edit {exercise.file}, then:\n  railyard check {target}")
    return 0


def _check(exercise: Exercise, place: Path) -> int:
    """Print a line for each part, and the points; 0 if those are all."""
    if not (place / exercise.file).is_file():
        again = f"railyard check --copy {exercise.name} writes a fresh folder"
        raise ConfigError(f"there is no {exercise.file} in {place}; {again}", key="check")
    if exercise.root and os.geteuid() != 0:
        raise MachineError(f"this lab brings up a fabric, which needs root: {railyard_as_root(f'check {place}')}")
    points, total = 0, sum(part.points for part in exercise.parts)
    for number, part in enumerate(exercise.parts):
        missing = _what_is_missing(exercise, number, place)
        gained = 0 if missing else part.points
        points += gained
        line = f"{gained} of {part.points}  {part.text}" + (f": {missing}" if missing else "")
        print(textwrap.fill(line, _COLUMNS, subsequent_indent=" " * 8, break_on_hyphens=False), flush=True)
    print(f"{points} of {total} points")
    return 0 if points == total else 1


def _what_is_missing(exercise: Exercise, number: int, place: Path) -> str:
    """A sentence on what is not right in a part yet (empty: it is done), found in a process of its own.

    ``MachineError`` if the machine lacks something that the check needs.
    """

    def is_bounded() -> None:
        if log.exists() and log.stat().st_size > _MOST_LOG:
            raise MachineError(f"it printed over {_MOST_LOG >> 20} MiB")

    with temporary_folder() as own:
        log = own / "log"
        try:
            command = ["railyard", "check", str(place), "--part", str(number)]
            status = run_command(command, log, longest_s=CHECK_S / len(exercise.parts), meanwhile=is_bounded)
        except MachineError as error:  # of the command: of what it starts there is the status
            return f"{error}; is there an endless loop in {exercise.file}?"
        if status == MachineError.exit_status:
            raise MachineError(last_line(log))
        with suppress(ValueError, IndexError, KeyError):
            return str(json.loads(log.read_text("utf-8", "replace").splitlines()[-1])["missing"])
        return f"{exercise.file} ended the check; it must not end its process"


def _judge(exercise: Exercise, number: int, place: Path) -> int:
    """In the process of a part: the last line that it prints says what is missing."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))  # a student's list may grow for ever
    missing = ""
    try:
        exercise.parts[number].check(place)
    except Missing as sentence:
        missing = str(sentence)
    except MachineError:
        raise
    except (Exception, SystemExit) as error:
        missing = fault(error, place / exercise.file)
    print(f"\n{json.dumps({'missing': missing})}")
    return 0
