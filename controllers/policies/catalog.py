"""Catalog of policies: those of Railyard by name, and those of others (``railyard.plugin``).

A package offers a policy as an entry point of the group ``railyard.policies``; a user's own is named ``module:Class``
or ``path/to/file.py:Class``. A module is imported when its policy is needed.
"""

from __future__ import annotations

from controllers.policies.policy import Policy
from railyard.plugin import load_class
from topos.plan import FabricPlan

POLICIES = {
    "opus": "controllers.policies.opus:OpusPolicy",
    "electrical": "controllers.policies.electrical:ElectricalPolicy",
    "one-shot": "controllers.policies.static:OneShotPolicy",
    "static": "controllers.policies.static:StaticPolicy",
    "follow": "controllers.policies.follow:FollowPolicy",
    "rotor": "controllers.policies.rotor:RotorPolicy",
    "demand": "controllers.policies.rotor:DemandPolicy",
    "lumion": "controllers.policies.lumion:LumionPolicy",
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
