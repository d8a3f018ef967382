"""Catalog of policies of the edge control plane: those of Railyard by name, and those of others (``railyard.plugin``).

A package offers a policy as an entry point of the group ``railyard.edge_policies``; a user's own is named
``module:Class`` or ``path/to/file.py:Class``.
"""

from __future__ import annotations

import random

from experiments.propius.control.policy import EdgePolicy
from railyard.errors import ConfigError
from railyard.plugin import load_class

EDGE_POLICIES = {
    "fifo": "experiments.propius.control.simple:Fifo",
    "random": "experiments.propius.control.simple:RandomJobs",
    "random-client": "experiments.propius.control.simple:RandomClients",
    "srsf": "experiments.propius.control.simple:SmallestRound",
    "irs": "experiments.propius.control.irs:Irs",
    "irs-strict": "experiments.propius.control.irs:IrsStrict",
    "irs-tiers": "experiments.propius.control.tiers:IrsTiers",
    "static": "experiments.propius.control.baselines:Static",
    "random-selection": "experiments.propius.control.baselines:RandomSelection",
}
"""The policies and baselines of Railyard: name -> ``module:Class``."""

GROUP = "railyard.edge_policies"
"""The group of entry points by which installed packages offer policies."""


def load_edge_policy(name: str, seed: int = 0, manager: int = 0) -> EdgePolicy:
    """A policy ``name`` whose randomness starts from ``seed``; ``ConfigError`` if it cannot be loaded.

    All client managers have the same ``seed``, and each, by its number ``manager``, draws of its own from ``random``.
    """
    found = EDGE_POLICIES.get(name, name)
    kind = load_class(found, EdgePolicy, GROUP, "an edge policy", "policies", EDGE_POLICIES)  # type: ignore[type-abstract]
    try:
        policy = kind(seed)
    except Exception as error:
        said = " ".join(str(error).split())
        raise ConfigError(
            f"{name} cannot be created ({said}); it needs a method order, and takes the seed", key="policies"
        ) from error
    if manager:
        policy.random = random.Random(seed + manager)
    return policy
