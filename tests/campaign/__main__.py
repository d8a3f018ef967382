"""The command line of the campaign, which ``scripts/test.sh --campaign N`` calls."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from experiments.settings import MOST_POINTS
from railyard.errors import RailyardError
from railyard.signals import stop_on_signals
from tests.campaign.bystander import Bystander
from tests.campaign.campaign import Campaign, Ending
from tests.campaign.expectation import expected
from tests.campaign.fault import chosen
from tests.campaign.soak import LEAST_POINTS, Use, growths, soak

MOST_FAULTS = 100_000
_ENDING = "{:>6}  {:<20} {:<9} {:>6}  {:>8}  {}"
_COUNTS = "{:<16} {:>6} {:>6} {:>6} {:>9} {:>15}"
_GROWTH = "{:<15} {:<20} {:>14} {:>14} {:>8}  {}"


def _whole(least: int, most: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        number = int(text)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"must be from {least} to {most}, not {text!r}")
        return number

    return whole_number


def main(arguments: Sequence[str] | None = None) -> int:
    """Make faults, or the long run, as the command line says; 1 if a run did not end as documented."""
    parser = argparse.ArgumentParser(prog="sudo scripts/test.sh", description=__doc__, allow_abbrev=False)
    ways = parser.add_mutually_exclusive_group(required=True)
    ways.add_argument("--campaign", type=_whole(1, MOST_FAULTS), metavar="N", help="make the first N faults of a seed")
    ways.add_argument("--fault", type=_whole(0, MOST_FAULTS - 1), nargs="+", metavar="NUMBER", help="make these of it")
    ways.add_argument(
        "--soak", type=_whole(LEAST_POINTS, MOST_POINTS), metavar="N", help="no faults: a run of N points"
    )
    parser.add_argument("--seed", type=int, help="seed that the faults are drawn from (default 1)")
    parser.add_argument("--parallel", type=_whole(1, 64), metavar="N", help="runs at the same time (default 2)")
    options = parser.parse_args(arguments)
    if options.soak is not None and (options.seed, options.parallel) != (None, None):
        parser.error("--seed and --parallel are for faults, and a soak makes none")
    if os.geteuid() != 0:
        parser.error("needs root")
    stop_on_signals()
    folder = Path(tempfile.mkdtemp(prefix="railyard-campaign-", dir="/var/tmp"))
    try:
        if options.soak is not None:
            return _soak(options.soak, folder)
        numbers = options.fault or range(options.campaign)
        return _campaign(1 if options.seed is None else options.seed, numbers, options.parallel or 2, folder)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except RailyardError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if any(folder.iterdir()):
            print(f"The files of runs are in {folder}")
        else:
            folder.rmdir()


def _campaign(seed: int, numbers: Iterable[int], parallel: int, folder: Path) -> int:
    endings = []
    print(_ENDING.format("number", "fault", "phase", "status", "clean s", "").rstrip())
    with Bystander() as bystander:
        for ending in Campaign(chosen(seed, set(numbers)), folder, parallel, bystander).endings():
            endings.append(ending)
            print(_line(ending), flush=True)
    print(*_counts(endings), sep="\n")
    wrong = sorted((ending for ending in endings if ending.wrong), key=lambda ending: ending.fault.number)
    for ending in wrong:
        print(f"{ending.fault.number}: {'; '.join(ending.wrong)}. Again: {ending.fault.command}")
    return 1 if wrong else 0


def _line(ending: Ending) -> str:
    """How the run of one fault ended."""
    fault, outcome = ending.fault, ending.outcome
    status = "" if outcome is None else "hung" if outcome.status is None else str(outcome.status)
    judgement = ending.not_made or "; ".join(ending.wrong) or "ok"
    if ending.wrong and outcome is not None:
        judgement += f" (expected {expected(fault.place)}: {outcome.sentence})"
    clean = "" if outcome is None else f"{outcome.cleaned_s:.1f}"
    return _ENDING.format(fault.number, str(fault), fault.place.phase, status, clean, judgement)


def _counts(endings: Sequence[Ending]) -> Iterable[str]:
    """The table of a campaign: how the runs ended, by what the faults hit."""
    by_target: dict[str, list[Ending]] = {}
    for ending in sorted(endings, key=lambda ending: ending.fault.number):
        by_target.setdefault(ending.fault.place.process or ending.fault.place.what, []).append(ending)
    yield "\n" + _COUNTS.format("fault of", "made", "ok", "wrong", "not made", "slowest clean s")
    for target, some in [*by_target.items(), ("all", endings)]:
        made = [ending for ending in some if not ending.not_made]
        wrong = sum(bool(ending.wrong) for ending in made)
        slowest = max((ending.outcome.cleaned_s for ending in made if ending.outcome), default=0.0)
        yield _COUNTS.format(target, len(made), len(made) - wrong, wrong, len(some) - len(made), f"{slowest:.1f}")


def _soak(points: int, folder: Path) -> int:
    uses = list[Use]()
    for use in soak(points, folder):
        uses.append(use)
        print(f"point {len(uses)} of {points}: {use['run', 'processes']} processes", flush=True)
    print("\n" + _GROWTH.format("process", "uses", "after warm-up", "at the end", "change", "").rstrip())
    for growth in (grown := growths(uses)):
        change = f"{growth.share * 100:+.1f}%"
        judgement = "flat" if growth.flat else "GROWS"
        print(_GROWTH.format(growth.process, growth.thing, growth.first, growth.last, change, judgement))
    flat = bool(grown) and all(growth.flat for growth in grown)
    if flat:
        shutil.rmtree(folder / "soak")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
