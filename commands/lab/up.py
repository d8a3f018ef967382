"""``railyard up``: brings a fabric up that stays, in a process of its own, and returns."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from railyard.errors import ConfigError, MachineError
from railyard.plugin import absolute_name
from railyard.process.child import Child

USAGE = """usage: railyard up rails|racks|edge|morphlux|FILE.py:Class|FILE.yaml
                   [--KEY VALUE ...] [--name lab]
                   [--controller os-ken|ryu|remote|none] [--remote HOST:PORT]
                   [--datapath auto|bpf|ovs] [--dark-ms MS] [--changing yes]
                   [--rest 127.0.0.1:PORT [--rest-token-file FILE]]

Brings a fabric up that stays until railyard down. KEY is an option of the
topology, as in: sudo railyard up rails --servers 4 --gpus 4 --fabric ocs
FILE.yaml has the same keys, and topology: rails. docs/lab.md has the rest."""
OWN = "name", "controller", "remote", "datapath", "dark_ms", "changing", "rest", "rest_token_file"
"""Keys of ``LabSpec``, which is checked in the daemon; all others are options of the topology."""
_UP_S = 120.0


def main(arguments: Sequence[str]) -> int:
    """Bring a lab up; returns the exit status once it is, or raises what kept it from coming up."""
    if not arguments or {"--help", "-h"}.intersection(arguments):
        print(USAGE)
        if arguments and not arguments[0].startswith("-"):
            _print_options(arguments[0])
        return 0
    spec = read_words(arguments)
    name = spec.get("name", "lab")
    if os.geteuid() != 0:
        raise MachineError("network namespaces need root; run the command with sudo")
    child = Child("commands.lab.daemon", spec, (), f"the lab {name}")
    child.begin()
    child.ready(_UP_S)
    print(child.told["status"])
    child.leave()
    lab = "" if name == "lab" else f" (with --lab {name}, if there are others)"
    print(f"try: railyard pingall | exec HOST -- PROGRAM | cli | down{lab}")
    return 0


def _print_options(topology: str) -> None:
    from commands.lab.lab import LabSpec

    options = [
        f"--{one.name.replace('_', '-')}\0{'...' if one.default in (None, '', one.empty) else one.default}"
        for one in LabSpec(topology).parameters()
        if one.kind != one.VAR_KEYWORD
    ]
    lines = fill("  ".join(options), 80, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    print(f"\noptions of {topology}, with their defaults:\n{lines}".replace("\0", " "))


def read_words(words: Sequence[str]) -> dict[str, Any]:
    """The fields of a ``LabSpec`` that a command line asks for, after those of its file."""
    topology, *rest = words
    given: dict[str, str] = {}
    while rest:
        option, *rest = rest
        key, equals, value = option.removeprefix("--").partition("=")
        if not option.startswith("--") or not re.fullmatch("[a-z][a-z0-9_-]*", key):
            raise ConfigError(f"{option} is no option; options are --KEY VALUE, as in --servers 4")
        if not equals:
            if not rest:
                raise ConfigError("needs a value", key=f"--{key}")
            value, *rest = rest
        given[key.replace("-", "_")] = value
    if topology.endswith((".yaml", ".yml")):
        given = {**_file_values(Path(topology)), **given}
        topology = given.pop("topology", "")
        if not topology:
            raise ConfigError("says which fabric: rails, racks, edge, or FILE.py:Class", key="topology")
    if "rest_token_file" in given:
        given["rest_token_file"] = str(Path(given["rest_token_file"]).absolute())
    options = {key: given.pop(key) for key in list(given) if key not in OWN}
    return {"topology": absolute_name(topology), "options": options, **given}


def _file_values(path: Path) -> dict[str, str]:
    from experiments.settings import read_yaml

    return {str(key): str(value) for key, value in read_yaml(path).items()}
