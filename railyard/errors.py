"""Every error a person can meet, in one tree.

Each message is one sentence that names the key or the thing and says what would be right. The exit
status of a script is the ``exit_status`` of the error that ended it.
"""

from __future__ import annotations


class RailyardError(Exception):
    """Root of all errors Railyard raises on purpose."""

    exit_status = 1


class ConfigError(RailyardError):
    """What a person wrote is wrong: an option, a key of an experiment file, a trace file.

    ``key`` is the option or the dotted key (``fabric.servers``), ``source`` the file and place, when
    there is one (``my.yaml`` or ``trace.xml:12``).
    """

    exit_status = 2

    def __init__(self, message: str, *, key: str | None = None, source: str | None = None) -> None:
        self.key = key
        self.source = source
        place = ": ".join(part if part.isprintable() else ascii(part) for part in (source, key) if part)
        super().__init__(f"{place}: {message}" if place else message)


class MachineError(RailyardError):
    """The machine cannot do it as it stands: not root, a tool missing, Open vSwitch not running."""

    exit_status = 3


class CircuitError(RailyardError):
    """A matching or a circuit that the switch cannot hold: port out of range, port used twice."""

    exit_status = 4


class ControlError(RailyardError):
    """The control plane did not do its part: no controller, no answer, a refused request."""

    exit_status = 5


class AgentError(RailyardError):
    """An agent on a host stopped before its program was done."""

    exit_status = 6


class PeerLost(AgentError):
    """An agent stopped because another one did: never the cause, always the consequence."""


class VerifyError(RailyardError):
    """Data arrived that is not what the schedule promises (wrong sum, wrong message)."""

    exit_status = 7


NOT_FAITHFUL_EXIT_STATUS = 8
"""Exit status of a run that finished but whose numbers the machine could not carry."""
