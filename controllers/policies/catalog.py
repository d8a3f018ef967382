"""Catalog of policies: those of Railyard and of installed packages by name, a user's own by module or file.

A package offers a policy as an entry point of the group ``railyard.policies``: its name, and ``module:Class``. A user's
own policy is named ``module:Class`` or ``path/to/file.py:Class``. A module is imported when its policy is needed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from controllers.policies.policy import Policy
from railyard.errors import ConfigError, nearest
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
    return policy_class(name)(plan)


def installed_policies() -> dict[str, str]:
    """The policies that installed packages offer: name -> ``module:Class``. Names of Railyard's own are left out."""
    found = (point for point in entry_points(group=GROUP) if point.name not in POLICIES)
    return {point.name: f"{point.module}:{point.attr}" for point in found}


def policy_class(name: str) -> type[Policy]:
    """The class of policy ``name``; ``ConfigError`` if there is none or it cannot be imported."""
    module_name, _, class_name = _place(name).rpartition(":")
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


def _place(name: str) -> str:
    """``module:Class`` or ``file.py:Class`` of policy ``name``; installed packages are searched only for other names.

    ``ConfigError`` for a name that no policy has.
    """
    if name in POLICIES:
        return POLICIES[name]
    module_name, _, class_name = name.rpartition(":")
    if module_name and class_name:
        return name
    installed = installed_policies()
    if name in installed:
        return installed[name]
    known = [*POLICIES, *installed]
    raise ConfigError(
        f"{name!r} is not a policy; use one of {', '.join(known)}, or module:Class of your own{nearest(name, known)}",
        key="policy",
    )


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
