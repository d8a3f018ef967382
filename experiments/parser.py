"""The parser of a command line; needs the standard library alone."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from railyard.errors import ConfigError, nearest

MOST_ARGUMENTS = 2000


def folder(text: str) -> Path:
    """The folder that an option or argument names, for the key ``type`` of argparse: empty text is none."""
    if not text:
        raise argparse.ArgumentTypeError("must name a folder")
    return Path(text)


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations, whose errors are ``ConfigError`` sentences that name the nearest option."""

    def __init__(self, **more: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **more)

    def error(self, message: str) -> NoReturn:
        """Raise ``ConfigError`` with argparse's sentence."""
        raise ConfigError(message.removeprefix("argument "))

    @property
    def options(self) -> list[str]:
        """Names of all options of the parser, each with its dashes."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]

    def read(
        self, arguments: Sequence[str], elsewhere: Callable[[], Mapping[str, Sequence[str]]] = dict
    ) -> argparse.Namespace:
        """Parse ``arguments``; ``elsewhere`` gives the experiments that have an option, for the error about it."""
        if len(arguments) > MOST_ARGUMENTS:  # the time of argparse grows as their square
            raise ConfigError(f"the command line has {len(arguments)} arguments; give at most {MOST_ARGUMENTS}")
        found, unknown = self.parse_known_args(list(arguments))
        if unknown:
            name = unknown[0].partition("=")[0]
            have = elsewhere().get(name, ())
            known = f"; {', '.join(have)} {'have' if len(have) > 1 else 'has'} it" if have else ""
            what = "is not an option here" if name.startswith("-") else "is one argument too many"
            raise ConfigError(what + (known or nearest(name, self.options, "--") or "; see --help"), key=name)
        return found
