"""Catalog of policies: those of Railyard by name, and those of others (``railyard.plugin``).

A package offers a policy as an entry point of the group ``railyard.policies``; a user's own is named ``module:Class``
or ``path/to/file.py:Class``. A module is imported when its policy is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from controllers.circuits.circuits import Matching
from controllers.policies.policy import Policy, Wiring
from railyard.errors import CircuitError, ConfigError, RailyardError
from railyard.plugin import code_failed, load_class
from railyard.validation import shown
from topos.plan import FabricPlan
from workloads.program import Group

POLICIES = {
    "opus": "controllers.policies.opus:OpusPolicy",
    "deciding": "controllers.policies.deciding:DecidingPolicy",
    "opus-whole-rail": "controllers.policies.opus:WholeRailPolicy",
    "electrical": "controllers.policies.static:ElectricalPolicy",
    "one-shot": "controllers.policies.static:OneShotPolicy",
    "static": "controllers.policies.static:StaticPolicy",
    "follow": "controllers.policies.follow:FollowPolicy",
    "rotor": "controllers.policies.rotor:RotorPolicy",
    "demand": "controllers.policies.rotor:DemandPolicy",
    "lumion": "controllers.policies.lumion:LumionPolicy",
    "fixed-ports": "controllers.policies.lumion:FixedPortsPolicy",
    "morphlux": "controllers.policies.morphlux:MorphluxPolicy",
    "torus": "controllers.policies.torus:TorusPolicy",
    "migrate": "controllers.policies.torus:MigratePolicy",
}
"""The policies of Railyard: name -> ``module:Class``."""

GROUP = "railyard.policies"
"""The group of entry points by which installed packages offer policies."""


def load_policy(name: str, plan: FabricPlan) -> Policy:
    """A policy ``name`` for the fabric ``plan``; ``ConfigError`` if it cannot be loaded or does not fit the fabric."""
    return load_class(POLICIES.get(name, name), Policy, GROUP, "a policy", "policy", POLICIES)(plan)


def rehearse(name: str, plan: FabricPlan, groups: Sequence[Group]) -> None:
    """Let policy ``name`` start a job of ``groups`` and answer each request of a group once, before a run.

    Raises ``ConfigError`` (key ``policy``) for a policy that cannot be loaded, does not fit the fabric or the groups,
    or whose code raises an error.
    """
    try:
        policy = load_policy(name, plan)
        current = {switch.name: Matching() for switch in plan.switches if switch.kind == "ocs"}
        current |= _checked(policy.start(groups), f"{name}: method start", current)
        for group in groups:
            if policy.asks(group) and not policy.rotation(group):
                current |= _checked(policy.wanted(group, current), f"{name}: method wanted", current)
    except (ConfigError, CircuitError) as error:
        raise ConfigError(error.message if isinstance(error, ConfigError) else str(error), key="policy") from None
    except RailyardError:
        raise
    except (Exception, SystemExit) as error:
        raise code_failed(name, error, "policy") from error


def _checked(found: Any, method: str, switches: Collection[str]) -> Wiring:
    """The circuits that ``method`` of a policy returned; ``ConfigError`` if they are no ``Wiring`` of ``switches``."""
    if not isinstance(found, Mapping):
        raise ConfigError(f"{method} returned {shown(found)}; return a dict: switch name -> Matching")
    for switch, circuits in found.items():
        if not isinstance(circuits, Matching) or switch not in switches:
            known = ", ".join(sorted(switches)) or "none, as there is no optical switch"
            pair = f"{shown(switch)}: {shown(circuits)}"
            raise ConfigError(f"{method} returned {{{pair}}}; return a Matching for switches of {known}")
    return found
