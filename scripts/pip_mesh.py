#!/usr/bin/env python3
"""Find out which matchings a photonic mesh can route, over how many cells, and on
which paths. No packets; needs no root.

scripts/pip_mesh.py                       # matchings of 8 ports, 7 x 3 mesh
scripts/pip_mesh.py --width 3 --height 3 --ports 8 --exact   # fewest cells
scripts/pip_mesh.py --width 9 --height 9 --ports 32          # suitable ports
scripts/pip_mesh.py --width 9 --height 9 --ports 32 --no-choose  # even spacing
scripts/pip_mesh.py --width 3 --height 3 --matching 0-14,7-21 --draw one.svg
scripts/pip_mesh.py --width 5 --height 5 --ports 0,5,11,16,22,27 --draw all.png
scripts/pip_mesh.py --exact --json        # for other programs

"routable" is true, false (proved), or null: no route was found in time, which
proves nothing (use --exact). The exit status is 0 if every matching has a route
or is proved to have none, 1 if one got no answer in time, 2 for bad input.
"""

from __future__ import annotations

import _venv  # noqa: F401 # must be first: restarts the script in the virtual environment

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from experiments.command import given, print_progress, run_script
from experiments.mesh.report import print_mesh, routable_in_words
from experiments.mesh.study import Answer, MeshStudy, Used, answers, as_json, used_ports, what_works
from experiments.settings import validated
from measure.results.ownership import hand_over
from railyard.errors import ConfigError

NOT_FOUND_EXIT_STATUS = 1
FORMS = ("svg", "png")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line; None for an option that was not given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--width", metavar="N", help="columns of hexagons, an odd number (default 7)")
    add("--height", metavar="N", help="hexagons in the first column; every second column has one less (default 3)")
    add("--ports", metavar="N|0,5,...", help="number of ports, or the ports themselves (default 8)")
    add(
        "--choose",
        action=argparse.BooleanOptionalAction,
        help="other ports than evenly spaced ones if these do not route every matching (default on without --exact)",
    )
    add("--matching", metavar="0-3,1-2", help="one matching of mesh ports, instead of all of a 1-factorization")
    add("--only", metavar="K", help="number of the only matching to route, from 0 (default all)")
    add("--exact", action="store_true", default=None, help="fewest cells, or the proof that there is no route")
    add("--time", dest="time_s", metavar="S", help="time limit for each matching, in s (default 10)")
    add("--seed", metavar="N", help="seed of the search (default 0)")
    add("--cell-loss", dest="cell_loss_db", metavar="DB", help="loss of a cell, in dB (default 0.5)")
    add("--cell-latency", dest="cell_latency_ps", metavar="PS", help="latency of a cell, in ps (default 10)")
    add(
        "--draw",
        type=Path,
        metavar="FILE",
        help=f"file for a figure of the mesh with a panel for each matching ({' or '.join(FORMS)})",
    )
    add(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="file for the answers as JSON; without FILE standard output, instead of the table",
    )
    return parser.parse_args(arguments)


def study_of(options: argparse.Namespace) -> MeshStudy:
    """The study of the command line; ``ConfigError`` for bad input."""
    names = ("width", "height", "ports", "choose", "matching", "only", "exact", "time_s", "seed")
    return validated(MeshStudy, given(options, *names, "cell_loss_db", "cell_latency_ps"))


def run(options: argparse.Namespace) -> int:
    """Run what the options ask for; returns the exit status."""
    study = study_of(options)
    check_files(options)
    found: list[Answer] = []
    with Console(stderr=True).status("searching"):
        used = used_ports(study)
        for answer in answers(study, used):
            found.append(answer)
    show(study, used, found, options)
    with Console(stderr=True).status("searching for alternatives"):
        advice = what_works(study, found)
    if advice:
        print_progress(f"pip_mesh.py: {advice}")
    return NOT_FOUND_EXIT_STATUS if any(answer.routable is None for answer in found) else 0


def check_files(options: argparse.Namespace) -> None:
    """Raise ``ConfigError`` for an output file that cannot be written, before the search begins."""
    if options.draw is not None and options.draw.suffix[1:] not in FORMS:
        raise ConfigError(f"must end in {' or '.join('.' + form for form in FORMS)}, not {options.draw}", key="draw")
    for key in ("draw", "json"):
        value = getattr(options, key)
        if value not in (None, "-") and not Path(value).parent.is_dir():
            raise ConfigError(f"{Path(value).parent} is not a folder; make it first", key=key)


def show(study: MeshStudy, used: Used, found: Sequence[Answer], options: argparse.Namespace) -> None:
    """Print the table or the JSON on standard output, and write the files."""
    text = json.dumps(as_json(study, used, found)) + "\n"
    if options.json == "-":
        sys.stdout.write(text)
    else:
        print_mesh(study, used, found, Console())
    if options.json not in (None, "-"):
        write(Path(options.json), text.encode())
    if options.draw is not None:
        draw(study, used, found, options.draw)


def draw(study: MeshStudy, used: Used, found: Sequence[Answer], path: Path) -> None:
    """Draw a panel for each matching; one without a route shows the mesh without light."""
    from experiments.mesh.figure import MeshPicture, mesh_figure, render  # matplotlib takes a second

    dark = (False,) * len(study.mesh.cells)
    pictures = []
    for answer in found:
        routed = answer.routed
        said = routable_in_words(answer) if routed is None else f"{routed.cells} cells"
        title = f"{'matching' if study.matching else f'matching {answer.number}'}: {said}"
        pictures.append(MeshPicture(title, routed.states if routed else dark, answer.pairs if routed else ()))
    title = f"{study.width} x {study.height} mesh, {len(used.ports)} of {len(study.mesh.ports)} ports"
    write(path, render(mesh_figure(study.mesh, pictures, title), path.suffix[1:]))


def write(path: Path, content: bytes) -> None:
    """Write a file that belongs to the user who called sudo; ``ConfigError`` if it cannot be written."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror}); name another file", source=str(path)) from None
    hand_over(path)


if __name__ == "__main__":
    sys.exit(run_script("pip_mesh.py", lambda: run(parse())))
