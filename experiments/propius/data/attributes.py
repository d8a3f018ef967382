"""What a client tells about itself, and what a job asks for."""

from __future__ import annotations

from typing import NamedTuple


class Attributes(NamedTuple):
    """The public attributes of a client, or the least values that a job accepts.

    ``cpu_f`` and ``ram`` are scores of the device, ``fp16_mem`` its memory score for half-precision numbers, and
    ``android_os`` the version of its operating system, all without units, as the authors' traces have them.
    ``speed_ms`` is the milliseconds that the client needs for a sample, 0 if it does not say; no job bounds it, and
    only a policy that matches tiers of speed reads it.
    """

    cpu_f: float
    ram: float
    fp16_mem: float
    android_os: float
    speed_ms: float = 0.0

    def meets(self, bounds: Attributes) -> bool:
        """Whether each attribute but the speed is at least that of ``bounds``."""
        return (
            self.cpu_f >= bounds.cpu_f
            and self.ram >= bounds.ram
            and self.fp16_mem >= bounds.fp16_mem
            and self.android_os >= bounds.android_os
        )
