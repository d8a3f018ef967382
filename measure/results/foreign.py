"""Results of another version, or that were changed: one sentence in place of an error of the code that reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from railyard import __version__
from railyard.errors import ConfigError


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Within it an error of values that this version does not write becomes a ``ConfigError`` about ``folder``."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ConfigError(
            f"{folder} holds what Railyard {__version__} does not write ({type(error).__name__}: {error}); "
            "use the version that wrote it, or run it again",
            key="results",
        ) from error
