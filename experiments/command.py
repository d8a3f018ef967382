"""How every script ends: an exit status, and one sentence on standard error for what went wrong."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.settings import Section, read_experiment
from railyard.errors import MachineError, RailyardError

STOPPED_EXIT_STATUS = 130


def carry_out(script: str, body: Callable[[], int]) -> int:
    """Run ``body`` and return the exit status of the script; SIGTERM ends it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also where Ctrl-C is ignored (a job in the background)
    try:
        return body()
    except RailyardError as error:
        print(f"{script}: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(f"{script}: stopped; what was measured is in the results folder", file=sys.stderr)
        return STOPPED_EXIT_STATUS


def need_root(script: str) -> None:
    """Refuse to go on as anybody but root."""
    if os.geteuid() != 0:
        raise MachineError(f"network namespaces and Open vSwitch need root; run: sudo scripts/{script}")


def tell(text: str) -> None:
    """A line for the person who waits: on standard error, since results go to standard output."""
    print(text, file=sys.stderr, flush=True)


def results_folder(out: Path | None, name: str) -> Path:
    """The folder that was asked for, or ``results/NAME-DATE-TIME``."""
    return out or Path("results") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def words(text: str) -> list[str]:
    """The words of a list with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def given(options: object, *names: str) -> dict[str, Any]:
    """Those of the options ``names`` that stand on the command line."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def under_options(
    options: argparse.Namespace, quick: Mapping[str, Any], model: type[Section], hint: str
) -> dict[str, Any]:
    """What the options of a study are put on: ``quick`` if they say so, and over that the experiment file, if any.

    ``hint``: keys of such a file, for whoever names something else.
    """
    values = dict(quick) if options.quick else {}
    return values if options.experiment is None else values | read_experiment(model, options.experiment, hint)


def put_section(values: dict[str, Any], section: str, keys: Mapping[str, Any]) -> None:
    """Let ``keys`` go before those that ``values`` has in ``section``; nothing happens if there are none."""
    if keys:
        values[section] = {**values.get(section, {}), **keys}
