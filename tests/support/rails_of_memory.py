"""Stands for the agents of all ranks in tests: a call on a rail is done in memory once all ranks made it."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from workloads.pytorch.script_ranks import RecordedCall


class RailsOfMemory:
    """The agents of ranks whose recorded calls are given; ``heard`` holds all that each rank said."""

    def __init__(self, folder: Path, recorded: Mapping[int, Sequence[RecordedCall]]) -> None:
        self._recorded = recorded
        self._lock = threading.Lock()
        self._open: dict[Any, dict[int, tuple[dict[str, Any], int, socket.socket]]] = {}
        self.heard: dict[int, list[dict[str, Any]]] = {rank: [] for rank in recorded}
        self.paths = {rank: str(folder / f"{rank}.socket") for rank in recorded}
        for rank, path in self.paths.items():
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(path)
            listener.listen()
            threading.Thread(target=self._serve, args=[rank, listener], daemon=True).start()

    def _serve(self, rank: int, listener: socket.socket) -> None:
        with listener:
            peer, _ = listener.accept()
        with peer:
            self._hear(rank, peer)

    def _hear(self, rank: int, peer: socket.socket) -> None:
        fds: list[int] = []
        rest = b""
        counts: Counter[Any] = Counter()
        while True:
            try:
                data, more, _, _ = socket.recv_fds(peer, 1 << 16, 16)
            except OSError:
                return
            if not data:
                return
            fds += more
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                self.heard[rank].append(message)
                if "ready" in message:
                    peer.sendall(b'{"go": true}\n')
                elif "kind" in message:
                    self._take(rank, message, fds.pop(0), peer, counts)

    def _take(self, rank: int, message: dict[str, Any], fd: int, peer: socket.socket, counts: Counter[Any]) -> None:
        call = self._recorded[rank][message["call"]]
        kind = "message" if call.kind in ("send", "recv") else call.kind
        way = (kind, call.ranks, call.kind == "send") if kind == "message" else (kind, call.ranks)
        counts[way] += 1
        sender = rank if call.kind == "send" else next((other for other in call.ranks if other != rank), rank)
        key = (kind, tuple(sorted(call.ranks)), counts[way], sender if kind == "message" else -1)
        with self._lock:
            members = self._open.setdefault(key, {})
            members[rank] = message, fd, peer
            if len(members) == len(call.ranks):
                del self._open[key]
                self._do([members[member] for member in call.ranks])

    def _do(self, members: list[tuple[dict[str, Any], int, socket.socket]]) -> None:
        first = members[0][0]
        dtype = getattr(torch, first["dtype"])
        given = [_read(fd) for _, fd, _ in members]
        kinds = [message["kind"] for message, _, _ in members]
        count = len(members)
        if first["kind"] in ("all_reduce", "reduce_scatter"):
            total = sum((values.view(dtype).double() for values in given[1:]), given[0].view(dtype).double())
            total = (total / count if first["reduce"] == "avg" else total).to(dtype).view(torch.uint8)
            results = [total] * count if first["kind"] == "all_reduce" else list(total.chunk(count))
        elif first["kind"] == "all_gather":
            results = [torch.cat([values[: first["bytes"] // count] for values in given])] * count
        elif first["kind"] == "all_to_all":
            pairs = zip(members, given, strict=True)
            parts = [values[: message["bytes"]].split(message["sent"]) for (message, _, _), values in pairs]
            results = [torch.cat([own[place] for own in parts]) for place in range(count)]
        else:  # a broadcast of the first rank, or a message
            results = [given[kinds.index("send") if "send" in kinds else 0]] * count
        for (message, fd, peer), result in zip(members, results, strict=True):
            os.pwrite(fd, result.numpy().tobytes(), 0)
            os.close(fd)
            peer.sendall(json.dumps({"done": message["call"]}).encode() + b"\n")


def _read(fd: int) -> torch.Tensor:
    return torch.frombuffer(bytearray(os.pread(fd, os.fstat(fd).st_size, 0)), dtype=torch.uint8)
