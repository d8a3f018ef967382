"""An incarnation of a training job: from a checkpoint on, with its current members, until the next failure."""

from __future__ import annotations

from dataclasses import dataclass

STAGES = ("checkpoint", "library", "data", "load")
"""Start-up stages of a rank before the first step of an incarnation, in order: fetch the checkpoint (a spare; the
others have it), synchronise the collective library, prepare the data, read the checkpoint into memory. Order of
MORPHLUX (arXiv 2508.03674, recovery timeline)."""


@dataclass(frozen=True)
class Incarnation:
    """Parameters of one incarnation of a job, for one rank.

    ``number`` counts the incarnations of the job from 0; ``first_step`` is the first step of this one (earlier steps
    are in the checkpoint). The state is made of the reduced values of all collectives over ``group``. A checkpoint is
    stored in ``store`` (the folder that stands for this host's disk) after every ``checkpoint_every`` steps (0: never);
    it holds ``state_bytes`` (real bytes, scaled like all bytes). ``copy_from``: fetch the checkpoint from this rank
    over the front-end network first (None: it is in ``store``, or the job begins). ``copy_to``: the ranks that fetch it
    from this one. ``given``: the durations (real seconds) of stages that are given instead of executed. ``heartbeat_s``
    is the heartbeat interval in wall-clock seconds (0: none).
    """

    number: int = 0
    first_step: int = 0
    group: str = "world"
    checkpoint_every: int = 0
    state_bytes: int = 0
    store: str = ""
    copy_from: int | None = None
    copy_to: tuple[int, ...] = ()
    given: tuple[tuple[str, float], ...] = ()
    heartbeat_s: float = 0.0

    def given_s(self, stage: str) -> float | None:
        """The duration given for ``stage`` (real seconds); None if the stage is executed."""
        return dict(self.given).get(stage)
