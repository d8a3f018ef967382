"""Inputs that a campaign once found: each ended with a traceback, or did not end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fuzz.grammars import CALIBRATION, with_head
from tests.fuzz.strategies import json_bytes
from tests.fuzz.table import TABLE, Reader

HEADS: list[Any] = [1.5, [], {}, None, {"job": "job", "step": "3"}]
BPF = {**CALIBRATION["datapaths"]["bpf"], "more": 1}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("yaml-collective", b"sizes: '" + b"9" * 400 + b"G'"),
        ("yaml-collective", b"scale: {rate: 1.0e-320}"),
        ("yaml-straggler", b"scale: {time: 1.0e-320}"),
        ("yaml-collective", b"sizes: [" + b"1K, " * 4000 + b"]\nalgorithms: [" + b"ring, " * 4000 + b"]"),
        ("yaml-collective", b"ranks: 64\nsizes: [" + b", ".join(b"%dK" % size for size in range(1, 300)) + b"]"),
        ("yaml-collective", b"ranks: 256\nfabric: {kind: ocs}\nsizes: [" + b"1K, " * 900 + b"]"),
        ("yaml-collective", b"ranks: 255\nalgorithms: [stragglar]"),
        ("yaml-straggler", b"ranks: [" + b", ".join(b"%d" % n for n in range(3, 28)) + b"]\nsizes: [1K]"),
        ("yaml-straggler", b"ranks: [256]\nstudies: [prediction]\niterations: 10000"),
        ("yaml-all-to-all", b"studies: [grid]\nranks: [128]\npolicies: [valiant]"),
        ("yaml-all-to-all", b"studies: [grid]\nranks: [128]\npolicies: [demand]\ndemand: skewed"),
        ("yaml-all-to-all", b"studies: [grid]\nranks: [128]\nsizes: [" + b"1K, " * 900 + b"]"),
        ("yaml-failover", b"fabrics: [" + b"e1, " * 2500 + b"]"),
        ("yaml-server-fabric", b"shapes: [" + b"2x1x1, " * 9000 + b"]"),
        ("yaml-propius", b"loads: [" + b", ".join(b"%d" % n for n in range(64, 128)) + b"]\nseeds: 100"),
        ("yaml-propius", b"micro_delays_ms: [" + b"5, " * 9000 + b"]"),
        ("yaml-allocation", b"torus: [2147483658, 4, 4]"),
        ("command-line", b"propius" + b"\n--1" * 16_000),
        ("command-line", b"mesh\n--draw\n\xc1"),
        ("topology-rails", b"mesh=" + b"9" * 5000 + b"x3"),
        ("spool", bytes(16) + b"\xff" * 8),
        ("yaml-failover", b"detection: {detect: null}"),
        ("yaml-rails", b"scale: {rate: '1e400'}"),
        ("yaml-rails", b"scale: {rate: '1e999999999'}"),
        ("yaml-rails", b"workload: " + b"9" * 5000),
        ("yaml-rails", b"steps: [" + b"[" * 5000),
        ("recipe", b"name: " + b"{a: " * 5000),
        ("show", b"9" * 5000),
        ("layers", b"DATA all_gpus: 20000\n1\nlayer -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1024 1\n"),
        ("calibration", json_bytes({**CALIBRATION, "datapaths": {"bpf": BPF}})),
        *(("checkpoint", with_head(head, b"1234")) for head in HEADS),
        *(("edge-journal", line + b"\n") for line in (b"5", b"[]", b"{", b'{"added": true}', b'{"sealed": [1]}')),
        *(("agent-configs", text) for text in (b"\xff", b"[]", b'{"program":[],"plan":[],"agents":[{"program":0}]}')),
        *(("ovsdb", text) for text in (b"\xff", b"[" * 5000, b"5", b'{"method":"echo"}', b'{"id":1,"result":[5]}')),
        *(("rows", text) for text in (b"[" * 5000, b"{}", b"[5]")),
        ("manifest", b"[" * 5000),
        *(("events", line + b"\n") for line in (b'"x"', b"{}", b"\xff", b"[" * 5000, b'{"t":1,"source":{},"kind":{}}')),
        ("events", b'{"t":1' + b"0" * 400 + b',"source":"run","kind":"x"}\n'),
        ("netlink", bytes(40)),
    ],
)  # fmt: skip
def test_what_was_found_is_taken_as_documented(name: str, data: bytes, read: Callable[[Reader, bytes], None]) -> None:
    read(TABLE[name], data)
