"""The command: ``PYTHONPATH=tests/support python -m fuzz --count 1000000 --seed 1``, from the folder of the project."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from fuzz.campaign import Campaign, Failure
from fuzz.catalog import targets
from fuzz.limits import read_one
from fuzz.target import Target


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz as the command line says; returns 1 if an input was not taken as documented."""
    parser = argparse.ArgumentParser(prog="PYTHONPATH=tests/support python -m fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="inputs of all targets together (default 100000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of all inputs (default 1)")
    parser.add_argument("--target", action="append", metavar="NAME", help="only this target; may be repeated")
    parser.add_argument("--seconds", type=float, default=inf, help="begin no more inputs after this time")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default 1)")
    parser.add_argument("--index", type=int, help="read one input of --target again, without limits")
    parser.add_argument("--file", type=Path, help="let --target read a file, without limits")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="folder for inputs that failed")
    parser.add_argument("--list", action="store_true", help="names of the targets")
    options = parser.parse_args(arguments)
    chosen = targets()
    if options.target:
        chosen = [target for name in options.target for target in chosen if target.name == name]
        if len(chosen) != len(options.target):
            parser.error(f"unknown target; they are {', '.join(target.name for target in targets())}")
    if options.list:
        print(*(target.name for target in chosen), sep="\n")
        return 0
    if options.index is not None or options.file is not None:
        if len(chosen) != 1 or not options.target:
            parser.error("--index and --file need one --target")
        data = options.file.read_bytes() if options.file else chosen[0].input(options.seed, options.index)
        return _again(chosen[0], data)
    campaign = Campaign(chosen, options.count, options.seed, options.jobs, options.keep)
    return _run(campaign, options.seconds)


def _again(target: Target, data: bytes) -> int:
    print(f"{len(data)} bytes: {data[:2000]!r}")
    with TemporaryDirectory() as folder:
        read_one(target, data, Path(folder))
    print("taken as documented")
    return 0


def _run(campaign: Campaign, seconds: float) -> int:
    began, seed = monotonic(), campaign.seed
    failures = campaign.run(seconds)
    print(f"{'target':<22}{'inputs':>9}{'seconds':>9}{'slowest':>11}{'largest':>10}{'failures':>10}")
    for tally in campaign.tallies:
        print(
            f"{tally.target.name:<22}{tally.done:>9}{tally.seconds:>9.1f}{tally.slowest_s * 1e3:>8.1f} ms"
            f"{tally.most_bytes / (1 << 20):>7.1f} MB{len(tally.failures):>10}"
            f"   slowest {tally.slowest}, largest {tally.largest}"
        )
    done = sum(tally.done for tally in campaign.tallies)
    print(f"{done} inputs, seed {seed}, {monotonic() - began:.0f} s, {len(failures)} failures")
    seen: dict[tuple[object, ...], list[Failure]] = {}
    for failure in failures:
        kind = tuple(line.partition(":")[0] if line[:4] != "File" else line for line in failure.where[:2])
        seen.setdefault((failure.target, failure.how, kind), []).append(failure)
    for alike in seen.values():
        _print(alike, seed)
    return 1 if failures else 0


def _print(alike: Sequence[Failure], seed: int) -> None:
    first = min(alike, key=lambda failure: failure.file.stat().st_size)
    more = f" (and {len(alike) - 1} like it)" if len(alike) > 1 else ""
    print(f"\n{first.target} {first.how}: input {first.index}{more}, kept as {first.file}")
    print(f"again: PYTHONPATH=tests/support python -m fuzz --target {first.target} --seed {seed} --index {first.index}")
    print(*(f"  {line}" for line in first.where), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
