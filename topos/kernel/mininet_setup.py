"""What Mininet does when a net is made and ended, without what it would do to the machine and its other users."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from mininet import net
from mininet.net import Mininet

from railyard.tools import safe_path


@contextmanager
def machine_left_alone() -> Iterator[None]:
    """Keep ``Mininet.__init__`` from raising ten settings of the whole machine, which would stay so.

    It calls ``Mininet.init`` by the name of the class, so that no subclass can replace it. From now on Mininet finds
    its tools in absolute folders only, and ends the terminals of a net (``xterm`` of its command line) by their process
    ids alone: it also kills everything whose command line matches ``mnexec.*socat``, whoever started it.
    """
    net.cleanUpScreens = lambda: None
    os.environ["PATH"] = safe_path()
    inited, Mininet.inited = Mininet.inited, True
    try:
        yield
    finally:
        Mininet.inited = inited
