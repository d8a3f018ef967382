"""The files of a folder as bytes, to be sent from one machine to another and unpacked there with care."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from railyard.errors import MachineError, shortened
from railyard.ownership import make_folder, open_binary
from railyard.reading import files_below

MOST_BYTES = 512 << 20
"""Most bytes that the files of a folder may have together, and most bytes of an archive."""
MOST_FILES = 20_000
MOST_DEPTH = 16
_PIECE_BYTES = 1 << 20
_LEVEL = 1  # of gzip: a log of 100 MB takes 1 s at this level and 4 s at the default one


def pack(folder: Path) -> bytes:
    """The regular files below ``folder`` as a compressed tar archive; links, sockets and empty folders are left out.

    ``MachineError`` for more than ``MOST_BYTES`` or ``MOST_FILES`` of them, which says what would work.
    """
    held, size = io.BytesIO(), 0
    with tarfile.open(fileobj=held, mode="w:gz", compresslevel=_LEVEL, format=tarfile.PAX_FORMAT) as archive:
        files = (file for file in sorted(files_below(folder)) if file.is_file() and not file.is_symlink())
        for number, file in enumerate(files):
            found = tarfile.TarInfo(file.relative_to(folder).as_posix())
            with open(file, "rb") as content:
                found.size = os.fstat(content.fileno()).st_size
                size += found.size
                if size > MOST_BYTES or number == MOST_FILES:
                    raise MachineError(
                        f"the results of a point are more than {MOST_BYTES >> 20} MiB or {MOST_FILES} files, the most "
                        f"that is sent between machines; shorten it (steps, iterations), or run it on one machine"
                    )
                archive.addfile(found, content)
    return held.getvalue()


def digest(data: bytes) -> str:
    """SHA-256 of an archive, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def unpack(data: bytes, expected: str, folder: Path, machine: str) -> list[str]:
    """Write the files of an archive that came from ``machine`` below ``folder``; returns their names.

    Files belong to the caller of sudo, and are on the disk when this returns. ``MachineError``, with nothing written,
    unless the content has the SHA-256 ``expected`` and holds regular files alone, each once, by a relative path that
    stays in the folder, within the bounds of ``pack``.
    """
    if digest(data) != expected:
        raise MachineError(f"the results from machine {machine} did not arrive as they were sent; run the point again")
    try:
        names = [name for name, _ in _members(data, machine)]
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise MachineError(
            f"the results from machine {machine} are no archive ({error}); run the point again"
        ) from None
    for name, member in _members(data, machine):
        target = folder / name
        make_folder(target.parent)
        with open_binary(target, "wb") as out:
            while piece := member.read(_PIECE_BYTES):
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
    return names


def _members(data: bytes, machine: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Each file of an archive with its checked name; ``MachineError`` for what must not be unpacked."""
    size, seen = 0, set[str]()
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        while (found := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # or the list of an endless archive would fill memory
            size += found.size
            why = _refused(found, seen)
            if size > MOST_BYTES or len(seen) >= MOST_FILES:
                why = "is one file too many, or too large"
            if why:
                raise MachineError(
                    f"the results from machine {machine} are not unpacked: {shortened(ascii(found.name))} {why}"
                )
            seen.add(found.name)
            content = archive.extractfile(found)
            assert content is not None
            yield found.name, content


def _refused(found: tarfile.TarInfo, seen: set[str]) -> str:
    """Why a member of an archive must not be unpacked; empty if it may be."""
    path = PurePosixPath(found.name)
    if not found.isreg() or found.issparse():
        return "is no regular file"
    if path.is_absolute() or ".." in path.parts or str(path) != found.name or not found.name.isprintable():
        return "is no plain relative path"
    if len(path.parts) > MOST_DEPTH or any(len(part.encode()) > 255 for part in path.parts):
        return "is too long a path"
    if found.name in seen or any(str(parent) in seen for parent in path.parents):
        return "is there twice"
    return ""
