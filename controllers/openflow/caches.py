"""How long after Open vSwitch's barrier reply packets may still go where they went before. Pure.

Open vSwitch answers a barrier when its tables have changed. Where it forwards packets itself, its flow caches follow a
little later, unseen by a controller. Where the kernel forwards for it (``topos.kernel.fastpath``), the reply is held
until the kernel has followed, so nothing is left to wait for.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CacheTimes:
    """Times of a datapath in seconds.

    - ``settle_s``: from a barrier reply until packets follow, if the tables had been quiet;
    - ``revalidation_s``: the least time between two updates of the caches, which adds to ``settle_s`` where changes
      follow each other closely;
    - ``early_s``: how long before the end of a dark time its end may be ordered, of a switch that keeps the time itself
      (``topos.kernel.fastpath.lasting``); None for others, which end it when they have executed the order;
    - ``notice_s``: how long before the circuits of a slot are up its ranks are told, so that all of them know in time.
    """

    settle_s: float
    revalidation_s: float
    notice_s: float
    early_s: float | None = None

    @property
    def quiet_lead_s(self) -> float:
        """Time before the end of a delay at which circuits are installed if no rank sends before it is told.

        The caches have then followed at the end of the delay, whatever the switch did before.
        """
        return self.settle_s + self.revalidation_s + self.notice_s


OPEN_VSWITCH = CacheTimes(settle_s=0.004, revalidation_s=0.005, notice_s=0.0)
"""Of Open vSwitch itself. Its caches follow within two milliseconds (measured), but only every five
(``udpif_revalidator`` in ofproto/ofproto-dpif-upcall.c). Ranks are told that long before anyway."""
EXACT = CacheTimes(settle_s=0.0, revalidation_s=0.0, notice_s=0.002, early_s=0.002)
"""Of a switch whose barrier reply means that packets follow. Open vSwitch removes the flows of 64 ports in 1.3 ms."""
