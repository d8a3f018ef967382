"""``railyard check``: lists the labs, writes a fresh one, or marks what a student has done, part by part."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import sys
import textwrap
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from itertools import chain, repeat
from pathlib import Path
from typing import NoReturn

from commands.command_process import last_line, run_command
from commands.exercises.exercise import Exercise, missing_in
from experiments.parser import Parser, folder
from railyard.checkout import ROOT, railyard_as_root
from railyard.errors import ConfigError, MachineError, nearest
from railyard.ownership import make_folder, open_text, temporary_folder
from railyard.reading import read_text

NAMES = (
    *("learning-switch", "dark-time", "ring-and-tree", "straggler", "rotor"),
    *("opus-slope", "failover", "hide-reconfiguration"),
)
"""The exercises, in the order in which a course would take them; each is a module here."""
LABS = ROOT / "labs"
"""The folder that has the text, the start file and the hints of each."""
DESCRIPTION = """\
Mark a lab that you work on, part by part; without arguments, list the labs.

railyard check                    # the labs
railyard check --copy dark-time   # writes a fresh folder dark-time
railyard check dark-time          # points for what you have done there"""
CHECK_S, PATIENCE_S = 60.0, 5.0
"""Longest duration of the check of all parts; then of its end in order, after which it is killed."""
_BOUNDS = {resource.RLIMIT_AS: 2 << 30, resource.RLIMIT_FSIZE: 64 << 20}
"""Most bytes of memory, and of a file, in each process of a check: a student's list or log may grow for ever."""
_MOST_BYTES, _MOST_LETTERS = 1 << 20, 1000
_COLUMNS = 80


def main(arguments: Sequence[str]) -> int:
    """List, copy or check labs; 0 if all points are there, 1 if not."""
    parser = Parser(prog="railyard check", description=DESCRIPTION)
    parser.add_argument("folder", nargs="?", type=folder, metavar="FOLDER", help="your folder, named as its lab")
    parser.add_argument("--copy", metavar="NAME", help="write the folder NAME of a lab into the working directory")
    parser.add_argument("--answers", type=Path, help=argparse.SUPPRESS)  # how a check starts the process for it
    options = parser.read(arguments)
    if options.copy is not None:
        return _copy(_named(options.copy, "--copy"))
    if options.folder is None:
        return _list()
    place = options.folder.resolve()
    exercise = _named(place.name, "check")
    if options.answers is not None:
        _judge(exercise, place / exercise.file, options.answers)
    return _check(exercise, place)


def _list() -> int:
    print(f"{'lab':<20} {'min':>3} {'root':<4} what it is about")
    for exercise in (_named(name, "check") for name in NAMES):
        print(f"{exercise.name:<20} {exercise.minutes:>3} {'yes' if exercise.root else 'no':<4} {exercise.title}")
    print("\nrailyard check --copy NAME writes its folder; README.md there says what to do.")
    return 0


def _named(name: str, key: str) -> Exercise:
    if name not in NAMES:
        other = nearest(name, NAMES) or "; a folder has the name of its lab, and railyard check lists them"
        raise ConfigError(f"{name} is no lab to check{other}", key=key)
    exercise: Exercise = import_module(f"commands.exercises.{name.replace('-', '_')}").EXERCISE
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
        typed = railyard_as_root(f"check {shlex.quote(str(place))}")
        raise MachineError(f"this lab brings up a fabric, which needs root: {typed}")
    points, total, parts = 0, sum(part.points for part in exercise.parts), iter(exercise.parts)

    def mark(sentences: Iterable[str]) -> None:
        """Print what is missing in the next parts."""
        nonlocal points
        for missing, part in zip(sentences, parts, strict=False):
            gained = 0 if missing else part.points
            points += gained
            line = f"{gained} of {part.points}  {part.text}" + (f": {missing}" if missing else "")
            print(textwrap.fill(line, _COLUMNS, subsequent_indent=" " * 8, break_on_hyphens=False), flush=True)

    reason, status = f"{exercise.file} ended the check; it must not end its process", 0
    with temporary_folder() as own, open(own / "answers", "w+", encoding="utf-8") as answers:
        command, log = ["railyard", "check", str(place), "--answers", answers.name], own / "log"
        bounds = {"longest_s": CHECK_S, "patience_s": PATIENCE_S}
        try:
            status = run_command(command, log, meanwhile=lambda: mark(map(json.loads, answers)), **bounds)
        except MachineError as error:  # it took too long
            reason = f"{error}; is there an endless loop in {exercise.file}?"
        if status == MachineError.exit_status:
            raise MachineError(last_line(log))
        mark(chain(map(json.loads, answers), [reason], repeat("not checked")))
    print(f"{points} of {total} points")
    return 0 if points == total else 1


def _judge(exercise: Exercise, file: Path, answers: Path) -> NoReturn:
    """In a process of its own: answer what is missing in each part, or in all where what they share does not begin."""
    for bound, most in _BOUNDS.items():
        resource.setrlimit(bound, (most, most))
    sys.dont_write_bytecode = True  # a folder of root's would stay beside the student's file
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with open(answers, "w", buffering=1, encoding="utf-8") as out:
        answers.unlink()  # a student's code does not write it by its name

        def answer(missing: str) -> None:
            print(json.dumps(missing[:_MOST_LETTERS]), file=out)

        def check() -> None:
            with exercise.begin(file) as subject:
                for part in exercise.parts:
                    answer(missing_in(partial(part.check, subject), file))

        if missing := missing_in(check, file):
            for _ in exercise.parts:
                answer(missing)
    os._exit(0)  # whatever the student's code has left to do at the end
