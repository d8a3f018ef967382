"""Which chip dies, and when: ``RANK@STEP`` or, after the failure before it, ``RANK@+SECONDS``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from railyard.errors import ConfigError

_NUMBER = r"\d{1,6}(?:\.\d{1,6})?"
_WRITTEN = re.compile(rf"(?P<rank>\d{{1,6}})@(?:(?P<step>{_NUMBER})|\+(?P<after>{_NUMBER}))")


@dataclass(frozen=True)
class Kill:
    """Chip ``rank`` dies when its job is ``step`` steps far (4.5: in the middle of the step after the fourth).

    With ``after_s`` instead, so many real seconds after the kill before it: a second failure during the recovery. A
    spare that is in no job dies by the steps of the first job.
    """

    rank: int
    step: float | None = None
    after_s: float | None = None

    @property
    def whole_steps(self) -> int:
        """Steps that all members must have done first."""
        return int(self.step or 0)

    @property
    def share(self) -> float:
        """Share of the step after those."""
        return (self.step or 0) - self.whole_steps

    def __str__(self) -> str:
        return f"{self.rank}@{self.step:g}" if self.step is not None else f"{self.rank}@+{self.after_s:g}"


def parse_kills(text: str) -> tuple[Kill, ...]:
    """The kills of ``1@4.5,16@+0.5``; ``ConfigError`` naming the one that is not written so."""
    kills: list[Kill] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        found = _WRITTEN.fullmatch(word)
        if found is None:
            raise ConfigError(
                f"must be RANK@STEP such as 1@4.5, or RANK@+SECONDS after the kill before it, not {word[:40]}",
                key="kill",
            )
        if found["after"] is not None and not kills:
            raise ConfigError(
                f"{word} counts from the kill before it, and there is none; begin with RANK@STEP", key="kill"
            )
        kills.append(Kill(int(found["rank"]), _number(found["step"]), _number(found["after"])))
    return tuple(kills)


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def check_kills(kills: Iterable[Kill], ranks: int, steps: int, known: Sequence[int]) -> None:
    """``ConfigError`` for a rank that does not exist, that nobody uses (``known``: members and spares) or that is dead
    by then, and for a step that the job does not reach.
    """
    dead: set[int] = set()
    for kill in kills:
        if kill.rank >= ranks:
            raise ConfigError(f"{kill} names rank {kill.rank}; this fabric has ranks 0 to {ranks - 1}", key="kill")
        if kill.rank not in known:
            raise ConfigError(
                f"{kill} names rank {kill.rank}, which is in no job and no spare; those are "
                f"{', '.join(map(str, sorted(known)))}",
                key="kill",
            )
        if kill.rank in dead:
            raise ConfigError(f"{kill} names rank {kill.rank}, which is dead by then; name another", key="kill")
        dead.add(kill.rank)
        if kill.step is not None and kill.step >= steps:
            raise ConfigError(f"{kill} is after the job's last step; it has {steps} steps", key="kill")


def random_kill(seed: int, members: Sequence[int], steps: int) -> Kill:
    """One member at a random moment of the job, the same for the same seed."""
    dice = Random(f"kill-{seed}")
    return Kill(dice.choice(list(members)), round(dice.uniform(0.05, steps - 0.2), 3))
