"""``railyard record``: a script's step as a workload, from shapes alone or from real processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from checkout import ROOT

from commands.main import main
from workloads.pytorch.record_file import read_record

SCRIPT = str(ROOT / "docs" / "examples" / "torch" / "pp_dp.py")
SIZES = {"dim": 32, "heads": 4, "kv-heads": 2, "hidden": 64, "vocab": 64, "seq": 16, "batch": 2, "layers": 4}
SMALL = [*(f"--{name}={size}" for name, size in SIZES.items()), "--data", "fsdp"]


def test_without_torch_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "workloads.pytorch.fake_rank", raising=False)
    assert main(["record", "--world", "4", SCRIPT]) == 2
    assert capsys.readouterr().err == "railyard: needs PyTorch: install the extra torch (docs/torch.md)\n"


def test_a_step_of_four_thousand_ranks_is_written_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="needs the extra torch (docs/torch.md)")
    out, chakra = tmp_path / "step.yaml", tmp_path / "chakra"
    options = [
        "--world",
        "4096",
        "--out",
        str(out),
        "--chakra",
        str(chakra),
        "--front-end-below",
        "2K",
        "--seconds",
        "2",
    ]
    assert main(["record", *options, SCRIPT, *SMALL, "--pp", "2", "--microbatches", "8"]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 or str(tmp_path) in line for line in shown.splitlines())
    for words in ("step 1 of 4096 ranks, 2 of them run on shapes alone", "2048-4095", "reduce_scatter", "CPU's path",
                  "2 s of the busiest rank", f"railyard predict rails --workload {out}"):  # fmt: skip
        assert words in shown
    record = read_record(out)
    assert (record.ranks, [len(ranks.ranks) for ranks in record.classes]) == (4096, [2048, 2048])
    busiest = max(ranks.compute_s for ranks in record.classes)
    assert busiest == pytest.approx(2.0)
    assert sorted(path.name for path in chakra.iterdir()) == ["pp_dp.0.et", "pp_dp.2048.et"]
    assert main(["predict", "rails", "--workload", str(out), "--modes", "electrical", "--delays", "0"]) == 0


def test_the_record_of_real_ranks_has_the_same_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="needs the extra torch (docs/torch.md)")
    files = [tmp_path / "shapes.yaml", tmp_path / "real.yaml"]
    for file, how in zip(files, ([], ["--real", "--factor", "0.5"]), strict=True):
        options = ["--world", "2", "--steps", "3", "--front-end-below", "2K", *how]
        assert main(["record", "--out", str(file), *options, SCRIPT, *SMALL, "--pp", "2", "--microbatches", "2"]) == 0
    assert "processor time of this machine, times 0.5" in capsys.readouterr().out
    shapes, real = map(read_record, files)
    assert real.roles == shapes.roles
    calls = [
        [(call.kind, call.role, call.bytes) for ranks in record.classes for call in ranks.calls]
        for record in (shapes, real)
    ]
    assert calls[0] == calls[1] and calls[0]
