"""What computes and measures: predictions, runs, sweeps, and results folders that are there already."""

from __future__ import annotations

import json
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from railyard.api.command import WITH_RESULTS, as_root_if_needed, railyard
from railyard.api.results import Results
from railyard.errors import ConfigError, MachineError


def predict(what: str = "rails", /, *, out: str | Path | None = None, quick: bool = False, **keys: Any) -> Results:
    """The model's numbers of an experiment; needs no root.

    ``what`` is the name of an experiment, ``FILE.yaml`` or ``FILE.py:Class``, and ``keys`` are those of an experiment
    file, which go before those of the file. Results are kept in the folder ``out``, and without it as long as they are
    used. ``ConfigError`` names a wrong key.
    """
    with ExitStack() as stack:
        place, undrawn = out, list[str]()
        if place is None:
            temporary = stack.enter_context(TemporaryDirectory(prefix="railyard-"))
            place, undrawn = Path(temporary, "results"), ["--no-figures"]
        words = (*_asked(what, keys, quick), "--out", place, *undrawn, "--json")
        results = _results(railyard("predict", *words, fine=WITH_RESULTS), _reads(place, what), kept=out is not None)
        weakref.finalize(results, stack.pop_all().close)
        return results


def run(
    what: str = "rails", /, *, out: str | Path | None = None, quick: bool = False, quiet: bool = False, **keys: Any
) -> Results:
    """Measure an experiment, given as for ``predict``, into the folder ``out`` (default ``results/NAME-DATE-TIME``).

    As root, or through a sudo that asks for no password, else ``MachineError`` has the command to type. Progress goes
    to standard error unless ``quiet``. A run that is not faithful has results too: see ``Results.faithful``.
    """
    folder = _new_folder(Path(what.partition(":")[0]).stem) if out is None else Path(out)
    words = (*_asked(what, keys, quick), "--out", folder, "--json")
    return _results(as_root_if_needed("run", *words, shown=not quiet), _reads(folder, what))


def sweep(what: str | Path | Mapping[str, Any], /, *, out: str | Path | None = None, quiet: bool = False) -> Results:
    """Run a sweep: of a file, of a mapping with the keys of one, or the points of a folder that are not done.

    The rows are those of its table, with repeats combined.
    """
    with TemporaryDirectory(prefix="railyard-") as place:
        path = folder = Path(place, "sweep.yaml") if isinstance(what, Mapping) else Path(what)
        name = path.stem
        if isinstance(what, Mapping):
            path.write_text(_as_json(what), encoding="utf-8")
            name = str(what.get("sweep", name))
        options = list[object]()
        if path.suffix in (".yaml", ".yml"):
            folder = _new_folder(name) if out is None else Path(out)
            options = ["--out", folder]
        try:
            _, *notes = as_root_if_needed("sweep", path, *options, shown=not quiet)
        except (ConfigError, MachineError) as error:  # a mapping has no file that a person could name
            said = str(error).removeprefix(f"{place}/sweep.yaml: ").replace(place, ".")
            raise type(error)(said) from None
    rows, record = (json.loads((folder / name).read_text(encoding="utf-8")) for name in ("table.json", "sweep.json"))
    return Results(rows, _reads(folder, record["file"]["experiment"], "sweep", "merge"), notes)


def load(folder: str | Path, /, *, experiment: str | None = None) -> Results:
    """The results of a folder, of a run or a prediction; ``ConfigError`` for any other.

    ``experiment`` is the ``FILE.py:Class`` of one whose code is yours.
    """
    reads = _reads(folder, experiment or "")
    return _results(railyard(*reads, "--no-figures", "--json", fine=WITH_RESULTS), reads)


def _reads(folder: str | Path, what: str, *command: str) -> list[str]:
    """The command line that reads a results folder of an experiment, whose code is named if it is of a file."""
    return [*(command or ("plot",)), *(["--experiment", what] if ":" in what else []), str(Path(folder).resolve())]


def _asked(what: str, keys: Mapping[str, Any], quick: bool) -> list[str]:
    return [what, *(["--keys", _as_json(keys)] if keys else []), *(["--quick"] if quick else [])]


def _as_json(keys: Mapping[str, Any]) -> str:
    """The keys as JSON, also with arrays of numpy and paths; ``ConfigError`` for one with another value."""

    def plain(value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else os.fspath(value)

    for key, value in keys.items():
        try:
            json.dumps(value, default=plain)
        except (TypeError, ValueError):
            raise ConfigError("must be text, a number, or a list or mapping of such", key=key) from None
    return json.dumps(dict(keys), default=plain)


def _new_folder(name: str) -> Path:
    return Path("results", f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")


def _results(printed: tuple[str, ...], reads: Sequence[str], *, kept: bool = True) -> Results:
    text, *notes = printed
    found = json.loads(text)
    return Results(found if isinstance(found, list) else [found], reads, notes, kept=kept)  # of a mesh it is one table
