"""The journal of a leaf server: what it has acknowledged and the root does not have yet, in a folder of the run.

A record is written before the action that comes after it, so it survives the death of the process, at whatever moment.
It is not forced to the disk, so it does not survive a loss of power: ``fdatasync`` of an update of 0.9 MB took 8 ms,
during which the server would do nothing else, and the write alone 0.3 ms. ``records.log`` has a line for each record;
the numbers of an update are a file of their own, which is deleted when the root has counted or refused them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from experiments.propius.data.data_requests import Stage, SumId, UpdateId
from experiments.propius.data.server_actions import Added, Closed, Record, Sealed, Started
from railyard.errors import MachineError
from railyard.ownership import make_folder, open_binary, remove_file
from railyard.protocol import from_json, to_json


class Journal:
    """The journal in ``folder``, which is made if it does not exist. Call ``read`` before the first ``write``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_folder(self._folder)
        self._path = folder / "records.log"
        with open_binary(self._path, "ab", permissions=0o600) as file:
            self._fd = os.dup(file.fileno())
        self._count = 0
        self._open: dict[int, list[int]] = {}
        """Job -> numbers of the updates in its open sum."""
        self._sealed: dict[SumId, list[int]] = {}

    def read(self) -> list[Record]:
        """The records of earlier incarnations; updates that the root has counted or refused come without numbers.

        Raises ``MachineError``, naming the line, for a journal with anything else in it.
        """
        whole, _, cut_short = self._path.read_bytes().rpartition(b"\n")
        if cut_short:
            os.truncate(self._fd, len(whole) + 1 if whole else 0)
        records = []
        for number, line in enumerate(whole.split(b"\n") if whole else (), 1):
            try:
                records.append(self._decoded(from_json(line)))
            except (ValueError, TypeError, KeyError):
                raise MachineError(
                    f"line {number} of {self._path} is no record of a leaf server's journal; begin a new run"
                ) from None
        kept = {number for numbers in (*self._open.values(), *self._sealed.values()) for number in numbers}
        for file in self._folder.glob("*.update"):
            if int(file.stem) not in kept:  # written when the process died, before its record, or closed
                remove_file(file)
        return records

    def write(self, record: Record) -> None:
        """Append a record; when this returns, the record survives the death of the process.

        Raises ``MachineError`` if it cannot be written; then nothing more may be written by this process.
        """
        try:
            if isinstance(record, Added) and record.payload:
                with open_binary(self._file(self._count), "wb") as file:
                    file.write(record.payload)
            line = to_json(self._encoded(record)) + b"\n"
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError as error:
            raise MachineError(
                f"the journal of a leaf server cannot be written to {self._folder}: {error.strerror}; "
                "make room there and start it again"
            ) from None
        for number in self._follow(record):
            remove_file(self._file(number))

    def _file(self, number: int) -> Path:
        return self._folder / f"{number}.update"

    def _follow(self, record: Record) -> list[int]:
        """Keep track of which updates are in which sum; returns those that are needed no more."""
        if isinstance(record, Added):
            self._open.setdefault(record.update.job, []).append(self._count)
            self._count += 1
        elif isinstance(record, Sealed):
            self._sealed[record.sum_id] = self._open.pop(record.job)
        elif isinstance(record, Closed):
            return self._sealed.pop(record.sum_id)
        return []

    def _encoded(self, record: Record) -> dict[str, Any]:
        if isinstance(record, Added):
            return {"added": [record.update.job, *record.update.stage, record.update.client]}
        if isinstance(record, Sealed):
            return {"sealed": record.sum_id, "job": record.job}
        return {"closed": record.sum_id} if isinstance(record, Closed) else {"started": record.incarnation}

    def _decoded(self, entry: dict[str, Any]) -> Record:
        record: Record
        if "added" in entry:
            job, round, attempt, client = entry["added"]
            file = self._file(self._count)
            payload = file.read_bytes() if file.exists() else b""
            record = Added(UpdateId(job, Stage(round, attempt), client), payload)
        elif "sealed" in entry:
            record = Sealed(SumId(*entry["sealed"]), entry["job"])
        elif "closed" in entry:
            record = Closed(SumId(*entry["closed"]))
        else:
            record = Started(entry["started"])
        self._follow(record)
        return record

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
