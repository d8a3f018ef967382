"""Catalog of policies of the edge control plane: those of Railyard by name, and those of others (``railyard.plugin``).

A package offers a policy as an entry point of the group ``railyard.edge_policies``; a user's own is named
``module:Class`` or ``path/to/file.py:Class``.
"""

from __future__ import annotations

import random

from controllers.edge.policy import EdgePolicy
from railyard.errors import ConfigError
from railyard.plugin import load_class

EDGE_POLICIES = {
    "fifo": "controllers.edge.simple:Fifo",
    "random": "controllers.edge.simple:RandomJobs",
    "random-client": "controllers.edge.simple:RandomClients",
    "srsf": "controllers.edge.simple:SmallestRound",
    "irs": "controllers.edge.irs:Irs",
    "irs-strict": "controllers.edge.irs:IrsStrict",
    "irs-tiers": "controllers.edge.tiers:IrsTiers",
    "static": "controllers.edge.baselines:Static",
    "random-selection": "controllers.edge.baselines:RandomSelection",
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
