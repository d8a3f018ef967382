"""Railyard's Python API (docs/api.md), and foundations that all packages share: errors, scale, the timeline, processes.

This package imports none of the others (``topos``, ``workloads``, ``controllers``, ``measure``, ``experiments``). The
names of the API are imported when they are used first.
"""

from importlib import import_module

TYPE_CHECKING = False
"""True for a type checker alone; not from ``typing``, which python -m would take from the working directory."""
if TYPE_CHECKING:
    from railyard.api.lab import Host, Lab, up
    from railyard.api.results import Figure, Results, Row
    from railyard.api.run import load, predict, run, sweep
    from railyard.errors import ConfigError, MachineError, RailyardError

__version__ = "0.7.0"
AUTHORS = "The Railyard authors"
LICENSE = "Apache-2.0"
__all__ = ["ConfigError", "Figure", "Host", "Lab", "MachineError", "RailyardError", "Results", "Row"]
__all__ += ["load", "predict", "run", "sweep", "up"]

if not TYPE_CHECKING:  # so that a type check knows the names above, and no others
    _MODULES = {
        "api.lab": ("Host", "Lab", "up"),
        "api.results": ("Figure", "Results", "Row"),
        "api.run": ("load", "predict", "run", "sweep"),
        "errors": ("ConfigError", "MachineError", "RailyardError"),
    }

    def __getattr__(name):
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(f"railyard.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return [*globals(), *__all__]
