from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from refusals import of_file, refusals
from script_runs import refuse

from commands.claims.claim import FILE, read_catalog
from commands.main import main
from railyard.errors import ConfigError

CATALOG = """
runs: {a: {arguments: mesh, minutes: 1}}
claims: {b: {system: X, says: Y, run: a, number: {take: value, column: n}, source: law, expected: 1}}
"""
SWEEP = "sweep: mine\nexperiment: fabric-cost\ngrid: {gpus: [[1024], [2048]]}\n"


def about_a_sweep(line: str) -> None:
    Path("sweep.yaml").write_text(SWEEP)
    with redirect_stdout(StringIO()):
        assert main(["sweep", "sweep.yaml", "--out", "folder", "--list"]) == 0
    refuse(line)


def experiment_file(content: str) -> None:
    Path("x.yaml").write_text(f"experiment: straggler\n{content}\n")
    try:
        refuse("predict x.yaml")
    except ConfigError as error:
        file, _, sentence = str(error).partition(": ")
        assert file == "x.yaml"
        raise ConfigError(sentence) from None


def catalog(old: str, new: str) -> None:
    Path(FILE).write_text(CATALOG)
    assert read_catalog(Path()).claims["b"].system == "X" and old in CATALOG
    Path(FILE).write_text(CATALOG.replace(old, new))
    read_catalog(Path())


test_refusals = refusals(
    Path(__file__).with_name("refusals.yaml"),
    {
        "command line": refuse,
        "line about a sweep": about_a_sweep,
        "experiment file": experiment_file,
        "catalog of claims": of_file(FILE, catalog),
    },
)
