"""A packet capture as a workload, on real packets: exactly its bytes arrive, and answers follow their questions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from captures import A, B, C, capture, packet
from script_runs import ONCE, called, rows

from railyard.timeline import read_events

pytestmark = [pytest.mark.root, pytest.mark.beside]

SIZE = 1200
SENT = Counter({(0, 1): 400 * SIZE, (1, 0): 200 * SIZE, (0, 2): 300 * SIZE})


def test_a_capture_is_sent_again(tmp_path: Path) -> None:
    path, out = tmp_path / "talk.pcap", tmp_path / "results"
    question = [packet(0.00012 * n, A, B, SIZE) for n in range(400)]
    answer = [packet(0.15 + 0.00012 * n, B, A, SIZE, seq=n * SIZE) for n in range(200)]
    other = [packet(0.25 + 0.00012 * n, A, C, SIZE) for n in range(300)]
    path.write_bytes(capture([*question, *answer, *answer[:50], *other]))
    options = ("--modes", "electrical", "--port-gbps", "0.1", "--rate", "1", "--time", "1", "--verify", *ONCE)
    done = called("run", "rails", "--workload", path, *options, "--out", out)
    assert done.returncode in (0, 8), done.stderr
    (row,) = rows(out)
    assert (row["wrong"], row["packets_lost"]) == (0, 0) and row["verified"] > 0
    events = [e for e in read_events(out / "points/000/events.jsonl") if e.kind == "communicate"]
    delivered: Counter[tuple[int, int]] = Counter()
    for event in events:
        if event["op_kind"] == "recv":
            delivered[int(event["name"].removeprefix("from ")), event["rank"]] += event["bytes"]
    assert delivered == SENT
    assert sum(event["payload_bytes"] for event in events) == SENT.total()
    begins = {(event["rank"], event["name"]): event.t for event in events if event["op_kind"] == "send"}
    received = {(event["rank"], event["name"]): event.end or 0 for event in events if event["op_kind"] == "recv"}
    assert begins[1, "to 0"] - received[1, "from 0"] > 0.1, "B took 102 ms for its answer"
    assert begins[0, "to 2"] - received[0, "from 1"] > 0.075, "and A 76 ms until it spoke to C"
    assert 0.178 < row["predicted_step_time_s"] < 0.265, "both gaps, and at most all bytes at line rate"
