"""``osken-manager`` and ``ryu-manager``, which start OpenFlow apps.

os-ken 4 comes without the program, and that of Ryu 4.34 does not start with any current eventlet.
"""

from __future__ import annotations

from collections.abc import Sequence

from controllers.openflow.app import PROGRAMS, run_apps

_HELP = f"""usage: railyard manager {"|".join(PROGRAMS)} [OPTIONS] APP...

Starts OpenFlow apps, files or modules, with the options of the framework's
program (railyard manager os-ken --help). They listen on loopback."""


def start(arguments: Sequence[str]) -> int:
    """Run apps under the framework that ``arguments`` name first, until they end."""
    framework, *others = arguments
    if framework in ("--help", "-h"):
        print(_HELP)
        return 0
    run_apps(framework, others)
    return 0
