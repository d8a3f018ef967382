"""The parser of a command line; needs the standard library alone."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
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
        raise ConfigError(message.removeprefix("argument "))

    @property
    def options(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]

    def read(self, arguments: Sequence[str], elsewhere: Callable[[str], str] = lambda name: "") -> argparse.Namespace:
        """Parse ``arguments``; ``elsewhere`` says where there is an option of this name, for the error about it.

        What it says after a blank goes before a longer name here, as it is about the same experiment.
        """
        if len(arguments) > MOST_ARGUMENTS:  # the time of argparse grows as their square
            raise ConfigError(f"the command line has {len(arguments)} arguments; give at most {MOST_ARGUMENTS}")
        options, unknown = self.parse_known_args(list(arguments))
        if unknown:
            name = unknown[0].partition("=")[0]
            if not name.startswith("-"):
                raise ConfigError("is one argument too many; see --help", key=name)
            other, longer = elsewhere(name), [option for option in self.options if name.strip("-") in option]
            if longer and not other.startswith(" "):
                other = f'; did you mean "{min(longer, key=len)}"?'
            hint = other or nearest(name, self.options, "--") or "; see --help"
            raise ConfigError(f"is not an option here{hint}", key=name)
        return options
