"""Catalog of policies: those of Railyard by name, a user's own as ``module:Class`` or ``path/to/file.py:Class``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

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
from railyard.errors import ConfigError
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
    module_name, colon, class_name = name.rpartition(":")
    if not colon or not module_name or not class_name:
        raise ConfigError(
            f"{name!r} is not a policy; use one of {', '.join(POLICIES)}, or module:Class of your own", key="policy"
        )
    module = _load_file(module_name) if module_name.endswith(".py") else _load_module(module_name)
    found = getattr(module, class_name, None)
    if found is None:
        raise ConfigError(f"module {module_name} has no class {class_name}", key="policy")
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise ConfigError(
            f"{class_name} of {module_name} is not a policy; it must subclass controllers.policies.policy.Policy",
            key="policy",
        )
    return found


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {name}; name one that Python can import from here, or a path that ends in .py",
                key="policy",
            ) from None
        raise ConfigError(f"module {name} cannot be imported: {error}", key="policy") from error
    except Exception as error:
        raise ConfigError(f"module {name} cannot be imported: {type(error).__name__}: {error}", key="policy") from error


def _load_file(name: str) -> ModuleType:
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f"there is no file {name}; name a Python file that exists", key="policy")
    module_name = f"railyard_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise ConfigError(f"{name} cannot be imported: {type(error).__name__}: {error}", key="policy") from error
    return module
