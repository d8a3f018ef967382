"""The origin of a results folder: the command line of its run, and the files that it read, with their hashes."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from railyard.reading import files_below

_PIECE_BYTES = 1 << 20
_MOST_FILES = 1000
"""Files of a folder of traces that are hashed."""
_SECRET = "token"
_NO_INPUT = {"rest_token_file", "events"}


def origin(verb: str, arguments: Sequence[str], settings: Mapping[str, Any], files: Iterable[str]) -> dict[str, Any]:
    """The keys of a manifest about where its results come from.

    ``command`` is a command line that repeats the run (``railyard run rails --quick``), ``inputs`` are the files that
    ``settings`` name, and ``files``, each with its size and SHA-256.
    """
    read = dict.fromkeys(file for name in (*files, *_texts(settings)) for file in _files(name))
    return {"command": command_line(verb, arguments), "inputs": [found for file in read for found in _hashed(file)]}


def command_line(verb: str, arguments: Sequence[str]) -> str:
    """The command line of a run, without the value of any option that has to do with a token."""
    words, hide = ["railyard", verb], False
    for word in arguments:
        option, sign, _ = word.partition("=")
        secret = option.startswith("--") and _SECRET in option
        words.append("FILE" if hide else f"{option}=FILE" if secret and sign else word)
        hide = secret and not sign and not hide
    return shlex.join(words)


def _texts(value: Any) -> Iterator[str]:
    """All texts in the values of settings; a path there is one that the run writes."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if name not in _NO_INPUT:
                yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _files(name: str) -> list[Path]:
    """The files that ``name`` names (``FILE``, ``FILE.py:Class`` or a folder of files); none if it is another word."""
    if not ("." in name or "/" in name) or "\0" in name:
        return []
    for path in (Path(name), Path(name.partition(":")[0])):
        if path.is_file():
            return [path]
        if path.is_dir() and path.name not in ("", ".."):
            return sorted(file for file in files_below(path) if file.is_file())[:_MOST_FILES]
    return []


def _hashed(file: Path) -> Iterator[dict[str, Any]]:
    """The file with its size and hash; nothing if it cannot be read any more."""
    with suppress(OSError):
        yield {"file": str(file), "bytes": os.stat(file).st_size, "sha256": sha256(file)}


def sha256(path: Path) -> str:
    """SHA-256 of the content of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
