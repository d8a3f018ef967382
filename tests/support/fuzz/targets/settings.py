"""Experiment files and command lines: the keys of every experiment, their bounds, and the checks before a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import yaml

from experiments import show
from experiments.command.run import experiment_of, file_values, kind_of, parser_of
from experiments.experiment import Experiment
from experiments.options import field_options
from experiments.registry import ENTRIES, find
from experiments.settings import validated
from fuzz.mutation import TEXTS, mutated_tree, number, yaml_text
from fuzz.target import Target
from measure.live.calibration import load_calibration
from railyard.errors import ConfigError, MachineError, VerifyError

_DOCUMENTED = (ConfigError, VerifyError)
SLOW = {"propius": 0.3, "failover": 0.3, "server-fabric": 0.3, "rails": 0.5, "bench": 0.2, "calibrate": 0.2}
"""Shares of experiments whose checks take long."""
_MOST_WORDS = 12
"""Words of a command line that shows files, each of which takes its time."""


def _file(kind: type[Experiment[Any]], data: bytes, folder: Path) -> None:
    path = folder / "own.yaml"
    path.write_bytes(data)
    kind(validated(kind.Settings, file_values(kind, path))).check()


def _words(data: bytes) -> list[str]:
    return [line.decode("utf-8", "surrogateescape") for line in data.split(b"\n")]


def _command(data: bytes, folder: Path) -> None:
    """A command line of ``railyard run``, up to the experiment that it describes."""
    kind, rest = kind_of(_words(data))
    try:
        experiment_of(kind, parser_of(kind).read(rest))
    except SystemExit as end:  # --help
        if end.code:
            raise AssertionError(f"ended with status {end.code}") from None


def _show(data: bytes, folder: Path) -> None:
    try:
        show.main(_words(data)[:_MOST_WORDS])
    except SystemExit as end:
        if end.code:
            raise AssertionError(f"ended with status {end.code}") from None


def _calibration(data: bytes, folder: Path) -> None:
    (folder / "calibration.json").write_bytes(data)
    load_calibration(folder / "calibration.json")


# ---- inputs by the grammars ----------------------------------------------------------------------------------------


def _tree(kind: type[Experiment[Any]]) -> dict[str, Any]:
    """The default values of an experiment, as its file would have them."""
    tree: dict[str, Any] = json.loads(kind.Settings(**dict(kind.quick)).model_dump_json(exclude_none=True))
    return tree


def _own_yaml(kind: type[Experiment[Any]], chance: Random) -> bytes:
    tree = _tree(kind)
    kept = {key: value for key, value in tree.items() if chance.random() < 0.3}
    for _ in range(chance.randrange(1, 4)):
        key = chance.choice(list(tree))
        kept[key] = mutated_tree(chance, tree[key])
    return yaml_text(chance, kept)


def _own_line(names: Sequence[str], options: dict[str, list[str]], values: Sequence[str], chance: Random) -> bytes:
    name = chance.choice(list(names))
    words = [name] if name else []
    for _ in range(chance.randrange(5)):
        words.append(chance.choice(options[name]))
        if chance.random() < 0.8:
            part: Callable[[], str] = lambda: chance.choice((str(number(chance)), chance.choice(values)))  # noqa: E731
            words.append(",".join(part() for _ in range(chance.choice((1, 1, 1, 2, 3)))))
    return "\n".join(words).encode("utf-8", "surrogatepass")


def targets() -> list[Target]:
    """The targets of this module."""
    kinds = {entry.name: find(entry.name) for entry in ENTRIES}
    files = [
        Target(
            f"yaml-{name}",
            partial(_file, kind),
            [yaml.safe_dump(_tree(kind)).encode()],
            _DOCUMENTED,
            [b"&a ", b"*a", b"<<: ", b"? ", b"- ", b": ", b"|\n", b">\n"],
            partial(_own_yaml, kind),
            SLOW.get(name, 1.0),
        )
        for name, kind in kinds.items()
    ]
    options = {name: [each.names[0] for each in field_options(kind.Settings)] for name, kind in kinds.items()}
    lines = [f"{name}\n{option}\n1".encode() for name, known in options.items() for option in known[:3]]
    shown = ["--algorithm", "--op", "--ranks", "--straggler", "--gpus-per-server", "--size", "--json", "--xml"]
    values = [*TEXTS, "ring", "all_to_all", "stragglar", "smoke", "1M", "1/250", "hierarchical", "valiant", "tree"]
    shows = [b"--algorithm\nring\n--ranks\n8", b"--algorithm\nstragglar\n--ranks\n8\n--straggler\n2", b"smoke\n--json"]
    words = [option.encode() for known in options.values() for option in known]
    own_show = partial(_own_line, [""], {"": shown}, values)
    return [
        *files,
        Target("command-line", _command, lines, _DOCUMENTED, words, partial(_own_line, list(kinds), options, values)),
        Target("show", _show, shows, _DOCUMENTED, [each.encode() for each in shown], own_show, 0.5),
        Target("calibration", _calibration, [calibration_text()], (MachineError,), make=_own_calibration, weight=0.5),
    ]


def calibration_text() -> bytes:
    """A calibration file."""
    from dataclasses import asdict

    from measure.live.calibration import default_calibration

    return json.dumps(asdict(default_calibration(("bpf", "ovs")))).encode()


def _own_calibration(chance: Random) -> bytes:
    return json.dumps(mutated_tree(chance, json.loads(calibration_text()))).encode()
