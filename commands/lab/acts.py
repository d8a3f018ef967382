"""What takes longer in a lab, such as its prompt and jobs: each in a fork of the daemon, with the client's streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from commands.lab.lab import Lab
from experiments.rails.cli import RailCLI
from railyard.errors import ConfigError


def act(lab: Lab, words: Sequence[str]) -> int:
    """Carry out the verb that comes first; the exit status."""
    verb, *rest = words
    return _ACTS[verb](lab, rest)


def _prompt(lab: Lab, words: Sequence[str]) -> int:
    if words:
        raise ConfigError("takes no words but --lab NAME", key="cli")
    RailCLI(lab.net, lab.session if lab.circuits() else None, lab.reach)
    return 0


def _pingall(lab: Lab, words: Sequence[str]) -> int:
    if words:
        raise ConfigError("takes no words but --lab NAME", key="pingall")
    if lab.plan is None or lab.spec.controller == "remote":  # whose circuits only pings can tell
        lab.net.pingAll(1)
        return 0
    lab.follow()
    for line in lab.reach.ping_all():
        print(line, flush=True)
    return 0


def _trace(lab: Lab, words: Sequence[str]) -> int:
    if len(words) != 2:
        raise ConfigError("usage: railyard trace HOST HOST")
    from measure.live.trace import trace

    here, there = words
    print(trace(lab.net, here, there))
    return 0


def _run(lab: Lab, words: Sequence[str]) -> int:
    if lab.session is None:
        raise ConfigError("this lab has no plan of ranks; jobs run on rails, racks or edge with a controller")
    from commands.run import main

    return main(words, standing=lab.session)


_ACTS: dict[str, Callable[[Lab, Sequence[str]], int]] = {
    "cli": _prompt,
    "pingall": _pingall,
    "run": _run,
    "trace": _trace,
}
