"""Command-line helpers that all scripts share: option handling, results folder, exit status, errors in one sentence."""

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


def run_script(script: str, body: Callable[[], int]) -> int:
    """Run ``body`` and return the exit status of the script.

    An error of Railyard is printed on standard error as one sentence. SIGTERM stops the script as Ctrl-C does.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # works in background jobs too, which ignore Ctrl-C
    try:
        return body()
    except RailyardError as error:
        print(f"{script}: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(f"{script}: stopped; the points measured so far are in the results folder", file=sys.stderr)
        return STOPPED_EXIT_STATUS


def need_root(script: str) -> None:
    """Raise ``MachineError`` unless the script runs as root."""
    if os.geteuid() != 0:
        raise MachineError(f"network namespaces and Open vSwitch need root; run: sudo scripts/{script}")


def print_progress(text: str) -> None:
    """Print a progress line on standard error, since results go to standard output."""
    print(text, file=sys.stderr, flush=True)


def results_folder(out: Path | None, name: str) -> Path:
    """The folder ``out`` of the command line, or ``results/NAME-DATE-TIME``."""
    return out or Path("results") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def words(text: str) -> list[str]:
    """The words of a comma-separated list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def given(options: object, *names: str) -> dict[str, Any]:
    """Values of the options ``names`` that were given on the command line, by name."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def base_values(
    options: argparse.Namespace, quick: Mapping[str, Any], model: type[Section], hint: str
) -> dict[str, Any]:
    """The experiment's values before options: ``quick`` with --quick, then the keys of the experiment file, if any.

    ``hint`` names keys of such a file, for the error about a file that holds something else.
    """
    values = dict(quick) if options.quick else {}
    return values if options.experiment is None else values | read_experiment(model, options.experiment, hint)


def put_section(values: dict[str, Any], section: str, keys: Mapping[str, Any]) -> None:
    """Override keys of ``section`` in ``values`` with ``keys``; without ``keys`` nothing changes."""
    if keys:
        values[section] = {**values.get(section, {}), **keys}
