"""Experiments and prompts that run on a lab where one is meant, and else on a fabric of their own."""

from __future__ import annotations

import os
from collections.abc import Sequence

from commands import run
from commands.lab import client
from workloads.catalog import CATALOG


def main(arguments: Sequence[str]) -> int:
    """Run an experiment; one with ``--lab``, and a workload of the catalog by itself, on a lab. The exit status."""
    name, words = client.lab_option(arguments)
    workload = bool(words) and words[0] in CATALOG
    if "--lab" not in arguments and not (workload and client.labs()):
        return run.main(arguments)
    return client.act(client.open_lab(name), ["run", *(["rails", "--workload"] if workload else []), *words])


def prompt(arguments: Sequence[str]) -> int:
    """The prompt of the lab that ``--lab`` names, or of the only one; without a lab that of a fabric of its own."""
    name, words = client.lab_option(arguments)
    if name is not None or (not words and os.geteuid() == 0 and client.labs()):
        return client.main(["cli", *arguments])
    return run.main(["rails", "--cli", *arguments])
