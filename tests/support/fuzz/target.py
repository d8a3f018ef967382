"""What is fuzzed: a reader, the inputs that it starts from, and the errors that it may raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from fuzz.mutation import mutated
from railyard.errors import ConfigError

Reader = Callable[[bytes, Path], object]
"""Reads an input; a reader of files finds an empty folder to put it into."""


@dataclass(frozen=True)
class Target:
    """A reader with its ``seeds``, valid inputs that are changed, and the errors that it documents (``allowed``).

    ``words`` are put into inputs as they are. ``make`` generates an input by the grammar of the format; half of the
    inputs then come from it. ``weight`` is the target's share of the inputs in multiples of the share of the others.
    """

    name: str
    read: Reader
    seeds: Sequence[bytes]
    allowed: tuple[type[Exception], ...] = (ConfigError,)
    words: Sequence[bytes] = ()
    make: Callable[[Random], bytes] | None = None
    weight: float = 1.0

    def input(self, seed: int, index: int) -> bytes:
        """Input number ``index`` of a campaign with ``seed``: the same on every machine."""
        chance = Random(f"{seed} {self.name} {index}")
        if index < len(self.seeds):
            return self.seeds[index]
        data = self.make(chance) if self.make is not None and chance.random() < 0.5 else chance.choice(self.seeds)
        return mutated(chance, data, self.seeds, self.words)
