"""``railyard check``: lists the labs, writes a fresh one, or marks what a student has done, part by part."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path

from commands.exercises.exercise import Exercise
from commands.exercises.judge import exercise_of, what_is_missing
from experiments.parser import Parser, folder
from railyard.checkout import ROOT, railyard_as_root
from railyard.errors import ConfigError, MachineError, nearest
from railyard.ownership import make_folder, open_text
from railyard.reading import read_text

NAMES = ("learning-switch", "dark-time", "failover")
"""The exercises, in the order in which a course would take them."""
LABS = ROOT / "labs"
"""The folder that has the text, the start file and the hints of each."""
DESCRIPTION = """\
Mark a lab that you work on, part by part; without arguments, list the labs.

railyard check                    # the labs
railyard check --copy dark-time   # writes a fresh folder dark-time
railyard check dark-time          # points for what you have done there"""
CHECK_S = 60.0
"""Longest duration of the check of all parts."""
_COLUMNS, _INDENT = 80, 8
_MOST_BYTES = 1 << 20


def main(arguments: Sequence[str]) -> int:
    """List, copy or check labs; 0 if all points are there, 1 if not."""
    parser = Parser(prog="railyard check", description=DESCRIPTION)
    parser.add_argument("folder", nargs="?", type=folder, metavar="FOLDER", help="your folder, named as its lab")
    parser.add_argument("--copy", metavar="NAME", help="write the folder NAME of a lab into the working directory")
    options = parser.read(arguments)
    if options.copy is not None:
        if options.folder is not None:
            raise ConfigError("writes a fresh folder and checks none; leave one of both out", key="--copy")
        return _copy(_named(options.copy, "--copy"))
    return _list() if options.folder is None else _check(options.folder)


def _list() -> int:
    print(f"{'lab':<21} {'minutes':>7}  {'root':<5} what it is about")
    for exercise in map(exercise_of, NAMES):
        print(f"{exercise.name:<21} {exercise.minutes:>7}  {'yes' if exercise.root else 'no':<5} {exercise.title}")
    print("\nrailyard check --copy NAME writes its folder; README.md there says what to do.")
    return 0


def _named(name: str, key: str) -> Exercise:
    if name not in NAMES:
        raise ConfigError(f"{name} is no lab{nearest(name, NAMES) or '; railyard check lists them'}", key=key)
    return exercise_of(name)


def _copy(exercise: Exercise) -> int:
    """Write the files of a lab into a new folder of its name, which belong to the caller of sudo."""
    target = Path(exercise.name)
    if target.exists():
        raise ConfigError("exists already; move it away, or work on in it", source=str(target))
    make_folder(target)
    for path in sorted(LABS.joinpath(exercise.name).iterdir()):
        if path.is_file():
            with open_text(target / path.name, "w") as file:
                file.write(read_text(path, _MOST_BYTES, "a file of a lab"))
    print(f"{target}/: read README.md, edit {exercise.file}, then: railyard check {target}")
    return 0


def _check(given: Path) -> int:
    """Print a line for each part, and the points; 0 if those are all."""
    place = given.resolve()
    exercise = _named(place.name, "check")
    if not (place / exercise.file).is_file():
        again = f"railyard check --copy {exercise.name} writes a fresh folder"
        raise ConfigError(f"there is no {exercise.file} in {given}; {again}", key="check")
    if exercise.root and os.geteuid() != 0:
        raise MachineError(f"this lab brings up a fabric, which needs root: {railyard_as_root(f'check {given}')}")
    points = 0
    for number, part in enumerate(exercise.parts):
        missing = what_is_missing(exercise, number, place, CHECK_S / len(exercise.parts))
        gained = part.points if missing is None else 0
        points += gained
        line = f"{gained} of {part.points}  {part.text}" + ("" if missing is None else f": {missing}")
        print(textwrap.fill(line, _COLUMNS, subsequent_indent=" " * _INDENT, break_on_hyphens=False), flush=True)
    total = sum(part.points for part in exercise.parts)
    print(f"{points} of {total} points")
    return 0 if points == total else 1
