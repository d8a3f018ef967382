"""What computes and measures: predictions, runs, sweeps, and results folders that are there already."""

from __future__ import annotations

import json
import os
import time
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from railyard.api.command import WITH_RESULTS, as_root_if_needed, railyard
from railyard.api.results import Results
from railyard.errors import ConfigError, MachineError, shortened

Place = str | Path


def predict(what: Place, /, *, out: Place | None = None, quick: bool = False, **keys: Any) -> Results:
    """The model's numbers of an experiment; needs no root.

    ``what`` is the name of an experiment, ``FILE.yaml`` or ``FILE.py:Class``, and ``keys`` are those of an experiment
    file, which go before those of the file. Results are kept in the folder ``out``, and without it as long as they are
    used. ``ConfigError`` names a wrong key.
    """
    asked = _asked(what, keys, quick)
    with ExitStack() as stack:
        place = out or Path(stack.enter_context(TemporaryDirectory(prefix="railyard-")), "results")
        undrawn = [] if out else ["--no-figures"]
        railyard("predict", *asked, "--out", place, *undrawn, fine=WITH_RESULTS)
        results = Results(place, "plot", *_own_code(place, "manifest.json"), kept=bool(out))
        weakref.finalize(results, stack.pop_all().close)
        return results


def run(what: Place, /, *, out: Place | None = None, quick: bool = False, quiet: bool = False, **keys: Any) -> Results:
    """Measure an experiment, given as for ``predict``, into the folder ``out`` (default ``results/NAME-DATE-TIME``).

    As root, or through a sudo that asks for no password, else ``MachineError`` has the command to type. Progress goes
    to standard error unless ``quiet``. A run that is not faithful has results too: see ``Results.faithful``.
    """
    asked = _asked(what, keys, quick)
    folder = out or _new_folder(Path(asked[0].partition(":")[0]).stem)
    as_root_if_needed("run", *asked, "--out", folder, shown=not quiet)
    return Results(folder, "plot", *_own_code(folder, "manifest.json"))


def sweep(what: Place | Mapping[str, Any], /, *, out: Place | None = None, quiet: bool = False) -> Results:
    """Run a sweep: of a file, of a mapping with the keys of one, or the points of a folder that are not done.

    The rows are those of its table, with repeats combined.
    """
    with TemporaryDirectory(prefix="railyard-") as place:
        if isinstance(what, Mapping):
            path, name = Path(place, "FILE.yaml"), str(what.get("sweep", "sweep"))
            path.write_text(_as_json(what), encoding="utf-8")
        else:
            path, name = Path(what).absolute(), Path(what).stem
        begins = path.suffix in (".yaml", ".yml")
        folder = Path(out or _new_folder(name)) if begins else path
        try:
            as_root_if_needed("sweep", path, *(["--out", folder] if begins else []), shown=not quiet)
        except (ConfigError, MachineError) as error:
            said = str(error).removeprefix(f"{place}/FILE.yaml: ")
            if place in said:  # a mapping has no file that a person could name
                said = said.replace(f"{place}/", "") + "; first save the mapping as FILE.yaml"
            raise type(error)(said) from None
    return Results(folder, "sweep", "merge", *_own_code(folder, "sweep.json"))


def load(folder: Place, /, *, experiment: str | None = None) -> Results:
    """The results of a folder, of a run or a prediction; ``ConfigError`` for any other.

    ``experiment`` is the ``FILE.py:Class`` of one whose code is yours.
    """
    reads = ["plot", *([] if experiment is None else ["--experiment", experiment])]
    railyard(*reads, Path(folder).resolve(), "--no-figures", "--quiet", fine=WITH_RESULTS)
    return Results(folder, *reads)


def _own_code(folder: Place, record: str) -> list[str]:
    """The option that names the experiment of results that were made just now, if its code is a file's."""
    found = json.loads(Path(folder, record).read_text(encoding="utf-8"))
    name = (found.get("file") or found["experiment"])["experiment"]
    return ["--experiment", name] if ":" in name else []


def _asked(what: Place, keys: Mapping[str, Any], quick: bool) -> list[str]:
    if str(what).startswith("-"):
        raise ConfigError(f"must be an experiment or a file, not {shortened(str(what))!r}", key="what")
    return [str(what), *(["--keys", _as_json(keys)] if keys else []), *(["--quick"] if quick else [])]


def _as_json(keys: Mapping[str, Any]) -> str:
    """The keys as JSON, also with arrays of numpy and paths; ``ConfigError`` for one with another value."""
    found = dict[str, Any]()
    for key, value in keys.items():
        try:
            text = json.dumps(value, default=lambda v: v.tolist() if hasattr(v, "tolist") else os.fspath(v))
        except (TypeError, ValueError):
            raise ConfigError("must be text, a number, or a list or mapping of such", key=key) from None
        found[key] = json.loads(text)
    return json.dumps(found)


def _new_folder(name: str) -> Path:
    return Path("results", f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")
