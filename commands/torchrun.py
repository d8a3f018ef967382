"""``railyard torchrun``: a PyTorch script on rails, typed as for torchrun; ``railyard run torch`` by another name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from commands import run
from commands.lab import jobs
from experiments.registry import find
from railyard.errors import ConfigError

_ONCE = "--repeats=1", "--attempts=1"
"""As a script may take long; options of a person come after them."""
USAGE = """usage: sudo railyard torchrun [options] SCRIPT.py [arguments of the script]

Run a PyTorch script as it is, one rank a host, its large tensors over rails.
--ranks N is their number (4); all options are those of railyard run torch
(--help), and what comes after SCRIPT.py belongs to the script. --lab NAME takes
a lab that is up: rank i is its host gi. --predict: the model alone, without
root. Each point is measured once, unless --repeats says otherwise. Each starts
the script anew, as does the recording before: {point} in an argument keeps
their files apart.

  sudo railyard torchrun --ranks 4 train.py --steps 10
  sudo railyard torchrun --modes provisioned --delays 0,50 --compute recorded \\
      train.py"""


def main(arguments: Sequence[str]) -> int:
    """Run the script that ``arguments`` name; returns the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    before, script, after = split(arguments)
    predicted = "--predict" in before
    words = [
        "torch",
        *(() if predicted else _ONCE),
        *before,
        f"--script={os.path.abspath(script) if '--lab' in before else script}",
    ]
    if after:
        words.append(f"--script-arguments={shlex.join(after)}")
    if not predicted and "--lab" not in before:
        run.need_root()  # before the step is recorded, which takes seconds
    return jobs.main(words)


def split(arguments: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """The options, the script and what belongs to the script; ``ConfigError`` without a script.

    An option whose value may be left out has it behind ``=``.
    """
    valued = {name for action in run.parser_of(find("torch"))._actions for name in action.option_strings
              if action.nargs is None} | {"--lab"}  # fmt: skip
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        place += 2 if arguments[place] in valued else 1
    if place >= len(arguments):
        raise ConfigError("name a PyTorch script after the options, as in: railyard torchrun --ranks 4 train.py")
    return list(arguments[:place]), arguments[place], list(arguments[place + 1 :])
