"""The rows of a run as ``summary.json`` and ``summary.csv`` have them."""

from __future__ import annotations

import csv
import io
import json
import textwrap
import zlib
from collections.abc import Iterable, Iterator, Sequence

from measure.results.estimates import bounds
from measure.results.plain import plain
from measure.results.row import Row


class Summary:
    """Rows in their order, kept as compressed JSON: those of a long run, each with its checks, take much memory.

    All rows are one compressed stream, with a piece for each, so that what they have in common is kept once.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._packer = zlib.compressobj()
        self._kept: list[bytes] = []
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        text = textwrap.indent(json.dumps(plain(row), indent=2), "  ")
        self._kept.append(self._packer.compress(text.encode()) + self._packer.flush(zlib.Z_SYNC_FLUSH))

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Row]:
        return (json.loads(text) for text in self._texts())

    def json(self) -> Iterator[bytes]:
        """``summary.json`` in pieces: a list with one entry per row."""
        if not self._kept:
            yield b"[]\n"
            return
        for number, text in enumerate(self._texts()):
            yield b",\n" if number else b"[\n"
            yield text
        yield b"\n]\n"

    def csv(self, columns: Sequence[str]) -> Iterator[bytes]:
        """``summary.csv`` in pieces: its ``columns``, and a line per row."""
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        for row in self:
            table.writerow({**row, **bounds(row, columns)})
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
        yield text.getvalue().encode()

    def _texts(self) -> Iterator[bytes]:
        return map(zlib.decompressobj().decompress, self._kept)
