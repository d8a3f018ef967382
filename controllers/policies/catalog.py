"""Catalog of policies: those of Railyard by name, and those of others (``railyard.plugin``)."""

from __future__ import annotations

from controllers.policies.electrical import ElectricalPolicy
from controllers.policies.follow import FollowPolicy
from controllers.policies.lumion import LumionPolicy
from controllers.policies.morphlux import MorphluxPolicy
from controllers.policies.oneshot import OneShotPolicy
from controllers.policies.opus import OpusPolicy
from controllers.policies.policy import Policy
from controllers.policies.rotor import DemandPolicy, RotorPolicy
from controllers.policies.static import StaticPolicy
from controllers.policies.torus import MigratePolicy, TorusPolicy
from railyard.plugin import load_class
from topos.plan import FabricPlan

POLICIES: dict[str, type[Policy]] = {
    "opus": OpusPolicy,
    "electrical": ElectricalPolicy,
    "one-shot": OneShotPolicy,
    "static": StaticPolicy,
    "follow": FollowPolicy,
    "rotor": RotorPolicy,
    "demand": DemandPolicy,
    "lumion": LumionPolicy,
    "morphlux": MorphluxPolicy,
    "torus": TorusPolicy,
    "migrate": MigratePolicy,
}
"""The policies of Railyard by name."""


def load_policy(name: str, plan: FabricPlan) -> Policy:
    """A policy ``name`` for the fabric ``plan``; ``ConfigError`` if it cannot be loaded or does not fit the fabric."""
    return policy_class(name)(plan)


def policy_class(name: str) -> type[Policy]:
    """The class of policy ``name``; ``ConfigError`` if there is none or it cannot be imported."""
    if name in POLICIES:
        return POLICIES[name]
    return load_class(name, Policy, "railyard.policies", "a policy", "policy", POLICIES)
