"""``railyard export``: RO-Crate metadata beside the results of a run."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from experiments.parser import Parser
from experiments.rest_access import TOKEN_FILE
from measure.results.crate import CRATE, HeldFile, crate_of, licence_address
from measure.results.folder import is_locked
from measure.results.foreign import reading
from measure.results.partial import partial
from measure.results.results import Results
from railyard.errors import PARTIAL_EXIT_STATUS, ConfigError
from railyard.reading import files_below


def main(arguments: Sequence[str]) -> int:
    """Write the metadata of a results folder into it; returns 0, or the exit status of partial results."""
    parser = Parser(
        prog="railyard export",
        description="Describe a results folder as an RO-Crate 1.1: ro-crate-metadata.json in it\n"
        "names its files, the command line, the software and the machine of the run.",
    )
    parser.add_argument("results", type=Path, metavar="FOLDER", help="results folder of a run (its --out)")
    parser.add_argument(
        "--license",
        metavar="ID",
        help="licence of the results, by SPDX such as CC-BY-4.0, or its address (default none)",
    )
    options = parser.read(arguments)
    folder, licensed = options.results, None
    if options.license is not None:
        try:
            licensed = licence_address(options.license)
        except ValueError as error:
            raise ConfigError(str(error), key="--license") from None
    results = Results.open(folder)
    said = partial(results.manifest(), results.rows(), under_way=is_locked(folder))
    try:
        path = results.write(CRATE, _metadata(results, said, licensed))
    except PermissionError:
        raise ConfigError(f"{folder} belongs to another user; use sudo, or copy it", key="results") from None
    if said is not None:
        print(said)
    print(path)
    return 0 if said is None else PARTIAL_EXIT_STATUS


def _metadata(results: Results, said: str | None, licensed: str | None) -> str:
    with reading(results.folder):
        crate = crate_of(
            results.manifest(),
            held_files(results.folder),
            published=time.strftime("%Y-%m-%d"),
            partial=said,
            under_way=is_locked(results.folder),
            licensed=licensed,
        )
    return json.dumps(crate, indent=2) + "\n"


def held_files(folder: Path) -> Iterator[HeldFile]:
    """The files of a results folder in order, but for the metadata, drafts, links and the token of REST."""
    for path in sorted(files_below(folder)):
        name = path.relative_to(folder)
        if str(name) in (CRATE, TOKEN_FILE) or path.name.startswith(".") or path.is_symlink() or not path.is_file():
            continue
        yield HeldFile(PurePosixPath(name), os.stat(path).st_size)
