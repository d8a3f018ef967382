"""Classes of other people: by entry point of an installed package, as ``module:Class``, or ``FILE.py:Class``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from railyard.errors import ConfigError, nearest

T = TypeVar("T")

FILE_MODULE = "railyard_user_"
"""Beginning of the names under which modules of files are imported."""


def entry_points(group: str) -> list[metadata.EntryPoint]:
    """The entry points of all installed packages in ``group``, by name."""
    return sorted(metadata.entry_points(group=group), key=lambda point: point.name)


def load_class(name: str, base: type[T], group: str, what: str, key: str, known: Iterable[str] = ()) -> type[T]:
    """The subclass of ``base`` that ``name`` names; ``ConfigError`` if there is none or it cannot be imported.

    ``name`` is ``module:Class``, ``FILE.py:Class``, or the name of an entry point in ``group``. A module must be
    installed or in an absolute folder of ``PYTHONPATH``: the working directory is not searched. ``what`` names such a
    class in errors (``a policy``), ``key`` the option, ``known`` the names that exist besides.
    """
    module_name, _, class_name = name.rpartition(":")
    if name.endswith(".py"):
        raise ConfigError(f"{name} is a file; name its class too, {name}:CLASS", key=key)
    if not (module_name and class_name):
        points = {point.name: point for point in entry_points(group)}
        if name not in points:
            names = [*known, *points]
            there = nearest(name, names) or f"; use one of {', '.join(names)}, or FILE.py:Class of your own"
            raise ConfigError(f"{name!r} is not {what}{there}", key=key)
        module_name, _, class_name = points[name].value.partition(":")
    module = load_file(module_name, key) if module_name.endswith(".py") else _load_module(module_name, key)
    named = getattr(module, class_name, None)
    if named is None:
        raise ConfigError(f"module {module_name} has no class {class_name}", key=key)
    if not (isinstance(named, type) and issubclass(named, base)):
        raise ConfigError(
            f"{class_name} of {module_name} is not {what}; it must subclass {base.__module__}.{base.__name__}", key=key
        )
    return named


def code_failed(name: str, error: BaseException, key: str) -> ConfigError:
    """The error about ``name``, whose own code raised ``error``: one sentence with the line of that code."""
    return ConfigError(f"{name} failed in {error_in(error)}", key=key)


def error_in(error: BaseException, file: Path | None = None) -> str:
    """Type and sentence of an ``error``, after the last line in ``file`` (None: in any) that it came through."""
    lines = [(Path(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    place = next((f"line {line} of {path.name}" for path, line in reversed(lines) if file in (None, path)), None)
    sentence = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    return f"{place or (file.name if file else 'its code')}: {sentence}"


def absolute_name(name: str) -> str:
    """``name`` as a process with another working directory finds it: ``FILE.py:Class`` with the whole path."""
    file, _, class_name = name.rpartition(":")
    return f"{Path(file).absolute()}:{class_name}" if file.endswith(".py") else name


def _load_module(name: str, key: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no installed module {name}; install it, or name its file, a path that ends in .py",
                key=key,
            ) from None
        raise ConfigError(f"module {name} cannot be imported: {error}", key=key) from error
    except Exception as error:
        raise ConfigError(f"module {name} cannot be imported: {type(error).__name__}: {error}", key=key) from error


def check_file(name: str, key: str) -> Path:
    """The path of a Python file; ``ConfigError`` if there is none."""
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f"there is no file {name}; name a Python file that exists", key=key)
    return path


def load_file(name: str, key: str) -> ModuleType:
    """The module of a Python file; ``ConfigError`` if there is none, or by what it raised while it was imported."""
    path = check_file(name, key)
    module_name = f"{FILE_MODULE}{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise ConfigError(f"{name} cannot be imported: {type(error).__name__}: {error}", key=key) from error
    return module
