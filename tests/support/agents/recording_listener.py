"""A controller that lets every group in at once and writes down what else it hears, with the time.

A process of its own, put ahead of others as a controller is: what it hears late, a controller would hear late. As a
program: ``listener_of_tests.py SOCKET FILE``.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from railyard.priority import set_priority

NICENESS = -10


class Listener:
    """Listens at ``path`` until it is closed."""

    def __init__(self, path: Path) -> None:
        self._file = path.with_name("heard.jsonl")
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(path), str(self._file)], stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"listening\n"

    def beats(self, rank: int) -> list[float]:
        """When a rank said that it lives."""
        heard: list[tuple[float, dict[str, Any]]] = [json.loads(line) for line in self._file.read_text().splitlines()]
        beats = [(t, message) for t, message in heard if (message["op"], message["rank"]) == ("alive", rank)]
        answers = [message["answers"] for _, message in beats]
        assert answers == sorted(answers) and all(message["job"] == "job" for _, message in beats)
        assert not answers or answers[-1] >= len(answers) / 2, "the loop answers"
        return [t for t, _ in beats]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def _serve(sock: socket.socket, out: TextIO) -> None:
    with suppress(ConnectionError), sock, sock.makefile() as connected:
        for line in connected:
            message = json.loads(line)
            out.write(json.dumps((time.monotonic(), message)) + "\n")
            if "id" in message:
                answer = {"id": message["id"], "ok": True, "domain": "scale-out", "asks": False, "paths": []}
                sock.sendall(json.dumps(answer).encode() + b"\n")


def _main(path: str, file: str) -> None:
    set_priority(NICENESS)
    with socket.socket(socket.AF_UNIX) as listener, Path(file).open("w", buffering=1) as out:
        listener.bind(path)
        listener.listen(16)
        print("listening", flush=True)
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=_serve, args=(sock, out), daemon=True).start()


if __name__ == "__main__":
    _main(*sys.argv[1:])
