"""Claims: how they are judged, that the pages show what is kept, and that those which compute hold here and now."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands.claims import command
from commands.claims import kept as keeping
from commands.claims.claim import DOCS, FILE, Claim, MeasuredRun, Number, Tolerance, judge, read_catalog
from commands.claims.command import claims_of, judged_claims
from commands.claims.kept import FORMAT, MARK, as_text, from_text, read_kept
from commands.claims.pages import BLOCK, Pages, origin_sentence, pages_of
from commands.main import main
from commands.run import experiment_of, kind_of, mode_of, parser_of
from experiments.registry import find
from measure.metrics.estimate import Estimate
from measure.metrics.load import others_says, without_names
from measure.results.row import described
from railyard.errors import ConfigError
from railyard.yaml_file import read_mapping, written_mapping

MEASURED = DOCS / "measured"
CATALOG = read_catalog()
NAMES = list(CATALOG.runs)
ORIGIN = {
    *("command", "began", "ended", "version", "commit", "changed", "cpu", "cores", "kernel", "datapath"),
    *("load_before", "steal", "calibrated", "scale"),
}


# ---- the catalog -----------------------------------------------------------------------------------------------------


def test_every_run_has_a_claim() -> None:
    assert {claim.run for claim in CATALOG.claims.values()} == set(NAMES)
    assert {path.stem for path in MEASURED.glob("*.json")} <= set(NAMES)


@pytest.mark.parametrize("claim", CATALOG.claims.values(), ids=CATALOG.claims)
def test_a_claim_names_columns_of_its_run_and_values_of_its_source(claim: Claim) -> None:
    kinds = find(CATALOG.runs[claim.run].words[1]).rows
    number = claim.number
    named = {*claim.rows, *number.top, *number.base, number.column, number.over, claim.by} - {""}
    named |= {claim.expected} if isinstance(claim.expected, str) else set()
    assert named <= {field.name for kind in kinds for field in described(kind)}
    if claim.by and claim.of:
        assert set(claim.rows[claim.by]) <= claim.of.values.keys()


@pytest.mark.parametrize("run", CATALOG.runs.values(), ids=NAMES)
def test_the_command_of_a_run_is_one(run: MeasuredRun) -> None:
    verb, *words = run.words
    kind, rest = kind_of(words)
    options = parser_of(kind, mode_of(kind, rest)).read(rest)
    experiment = experiment_of(kind, options)
    experiment.check()
    assert run.root == (verb == "run" and experiment.needs_root())
    assert set(run.keep) <= {each.name for rows in kind.rows for each in described(rows)}
    assert all((DOCS / "figures" / place).is_file() for place in run.figures.values())


@pytest.mark.parametrize("wide", [False, True])
def test_the_table_of_claims_has_whole_names_and_verdicts_on_80_columns(
    wide: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(["claims", *(["--wide"] if wide else [])])
    text = capsys.readouterr().out
    judged = {each.claim.name: each.verdict for each in judged_claims(CATALOG, read_kept(MEASURED, NAMES)[0])}
    table = text.partition("\nholds: ")[0].splitlines()
    lines = {line.split()[0]: line.rstrip() for line in table if line.split()[0] in judged}
    assert lines.keys() == judged.keys()
    assert all(lines[name].endswith(f"  {verdict}") for name, verdict in judged.items())
    assert (max(map(len, text.splitlines())) <= 80) is not wide
    assert ("95 % interval" in text) is wide and ("1 column has no room here; --wide shows it." in text) is not wide


def test_what_a_wheel_brought_is_not_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("commands.claims.command.SETUP", DOCS / "nowhere")
    for option in ("--run", "--pages"):
        assert main(["claims", option]) == 2
        assert f"--docs: writes numbers and pages: copy {DOCS}, and name the copy" in capsys.readouterr().err


# ---- pages -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages() -> Pages:
    kept, said = read_kept(MEASURED, NAMES)
    assert said == []
    return Pages(CATALOG.runs, kept, judged_claims(CATALOG, kept))


PAGES = list(pages_of(DOCS))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_show_what_is_kept(page: Path, pages: Pages) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == pages.rewritten(text, page.name), "run: railyard claims --pages"


def test_every_marker_of_a_page_begins_a_block() -> None:
    assert {"claims.md", "rails.md"} <= {page.name for page in PAGES}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        begun = sum(text.count(f"<!-- {word}") for word in ("measured", "findings", "claims", "runs"))
        assert begun == text.count("<!-- end -->") == len(BLOCK.findall(text)), page.name


@pytest.mark.parametrize(
    ("marker", "sentence"),
    [
        ("measured nosuch", "page.md: 'nosuch' is no run of the catalog; those are "),
        ("measured fabric-cost | GPUs | nosuch", "page.md: no table has the columns GPUs | nosuch; there are parts | "),
    ],
)
def test_a_wrong_marker(marker: str, sentence: str, pages: Pages) -> None:
    with pytest.raises(ConfigError) as raised:
        pages.rewritten(f"<!-- {marker} -->\n<!-- end -->\n", "page.md")
    assert str(raised.value).startswith(sentence)


# ---- verdicts --------------------------------------------------------------------------------------------------------

LAW = Claim(
    name="x",
    system="System",
    says="It is two",
    run="mesh",
    number=Number(take="value", column="a"),
    source="law",
    expected=2.0,
    tolerance=Tolerance(share=0.1),
)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        ({"a": 2.15}, "holds"),
        ({"a": 2.25}, "does not hold"),
        ({"a": 1.75}, "does not hold"),
        ({"a": 2.0, "faithful": False}, "not faithful"),
        ({"a": 2.0, "faithful": False, "computed": True}, "holds"),
        ({"a": None, "faithful": False}, "not measured"),
    ],
)
def test_the_verdict_of_a_claim(row: Mapping[str, Any], verdict: str) -> None:
    assert judge(LAW, [row]).verdict == verdict


@pytest.mark.parametrize(("a", "why", "said"), [(2.0, "", None), (9.0, "", "no reason"), (9.0, "it is ours", None),
                                              (2.0, "it is ours", "the catalog says that it does not")])  # fmt: skip
def test_a_verdict_that_is_not_the_expected_one_ends_with_1(
    a: float,
    why: str,
    said: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    claim = LAW.model_copy(update={"why": why})
    monkeypatch.setattr(command, "judged_claims", lambda *_: [judge(claim, [{"a": a}])])
    monkeypatch.setattr(command, "claims_of", lambda *_, **__: [claim])
    shutil.copy(DOCS / FILE, tmp_path)
    assert main(["claims", "--docs", str(tmp_path)]) == (0 if said is None else 1)
    assert (said or "") in capsys.readouterr().err


def test_what_is_not_measured_is_said_to_be_predicted(pages: Pages) -> None:
    text = pages.rewritten("<!-- claims Opus -->\n<!-- end -->\n", "page.md")
    lines = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    assert " s/s, predicted |" in lines["opus-slope-1-3"] and "predicted" not in lines["opus-cost"]
    assert "| **does not hold** |" in lines["opus-100-provisioned"]
    assert "It does not hold: the model hides more of the delays" in " ".join(text.split())


def test_a_page_names_the_commit_and_a_change(pages: Pages) -> None:
    kept, _ = read_kept(MEASURED, NAMES)
    found = kept["mesh"]
    for is_changed, said in (
        (True, "Railyard 0.5.0 (abcdef01, **changed**)"),
        (False, "Railyard 0.5.0 (abcdef01)"),
    ):
        origin = {**found.origin, "version": "0.5.0", "commit": "abcdef0123456789", "changed": is_changed}
        assert origin_sentence(replace(found, origin=origin)).endswith(f", {said}.")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_numbers_that_are_older_than_their_code_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    commits = []
    git(tmp_path, "init", "-q")
    paths = (
        "experiments/fabric_cost/experiment.py",
        "experiments/mesh/row.py",
        "commands/page/page.py",
        "topos/rails.py",
    )
    for path in (*paths, "experiments/runner.py", "docs/rails.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
        git(tmp_path, "add", "-A")
        git(tmp_path, *identity, "commit", "-qm", path)
        commits.append(git(tmp_path, "rev-parse", "HEAD"))
    monkeypatch.setattr(keeping, "ROOT", tmp_path)
    kept, _ = read_kept(MEASURED, ["fabric-cost", "mesh"])

    def older(name: str, commit: str | None) -> int | None:
        return keeping.older_by(CATALOG.runs[name], replace(kept[name], origin={**kept[name].origin, "commit": commit}))

    assert [older("fabric-cost", commit) for commit in commits] == [2, 2, 2, 1, 0, 0]
    assert [older("mesh", commit) for commit in commits] == [3, 2, 2, 1, 0, 0]
    assert older("mesh", "0" * 40) is None and older("mesh", "--all") is None and older("mesh", None) is None
    monkeypatch.setattr(command, "older_by", lambda run, _: 3 if run.name == "mesh" else 0)
    assert main(["claims"]) == 0
    assert "changes of their code (commits since): mesh (3)." in " ".join(capsys.readouterr().out.split())
    assert main(["claims", "pip-matchings"]) == 0
    assert "older than its code by 3 commits" in capsys.readouterr().out


def test_a_claim_without_rows_is_not_measured() -> None:
    assert {judge(LAW, rows).verdict for rows in (None, [], [{"a": 2.0}, {"a": 2.0}])} == {"not measured"}


@pytest.mark.parametrize(
    ("tolerance", "good", "bad"),
    [
        (Tolerance(share=0.5), (0.5, 3.0), (0.49, 3.01)),
        (Tolerance(points=0.1), (0.9, 2.1), (0.89, 2.11)),
        (Tolerance(side="most"), (-5.0, 2.0), (2.01,)),
        (Tolerance(side="least", points=0.5), (0.5, 9.0), (0.49,)),
    ],
)
def test_tolerances(tolerance: Tolerance, good: tuple[float, ...], bad: tuple[float, ...]) -> None:
    assert all(tolerance.holds(each, (1.0, 2.0)) for each in good)
    assert not any(tolerance.holds(each, (1.0, 2.0)) for each in bad)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ({"take": "slope", "over": "x", "column": "t", "times": 10}, (20.0, 20.0, 20.0, 3)),
        ({"take": "ratio", "column": "t", "top": {"mode": "b"}, "base": {"mode": ["a", "c"]}}, (3.0, 3)),
        ({"take": "difference", "column": "t", "top": {"mode": "b"}, "base": {"mode": "a"}}, (4.0, 4.0, 4.0, 3)),
        ({"take": "ratio", "column": "t", "top": {"mode": "b"}, "base": {"mode": "c"}}, None),
        ({"take": "furthest", "column": "t", "over": "p"}, (1.5, 3)),
        ({"take": "furthest", "column": "t", "over": "none"}, None),
        ({"take": "total", "column": "p"}, (6.0, 1)),
        ({"take": "total", "column": "none"}, None),
        ({"take": "share", "top": {"mode": "a"}}, (0.5, 1)),
        ({"take": "count", "plus": 1}, (3.0, 1)),
        ({"take": "value", "column": "t"}, None),
    ],
)
def test_numbers_are_medians_of_repeats_paired_within_them(
    number: Mapping[str, Any], expected: tuple[float, ...] | None
) -> None:
    one = {"mode": "a", "x": 0.0, "t": 2.0, "p": 2.0, "samples": {"t": [1.0, 2.0, 3.0]}}
    two = {"mode": "b", "x": 2.0, "t": 6.0, "p": 4.0, "samples": {"t": [5.0, 6.0, 7.0]}}
    found = Number.model_validate(number).of([one, two])
    shown = found and (found.median, *((found.low, found.high) if len(expected or ()) == 4 else ()), found.n)
    assert shown == expected


def test_a_crossing_is_found_in_each_repeat() -> None:
    """Ring falls with lateness as in 2 - x, StragglAR takes 1, 1.2 and 0.8."""
    rows = [
        {"a": name, "x": x, "t": samples[0], "samples": {"t": samples}}
        for name, x, samples in (
            ("ring", 2.0, [2.0, 2.0, 2.0]),
            ("ring", 0.0, [0.0, 0.0, 0.0]),
            ("late", 0.0, [1.0, 1.2, 0.8]),
            ("late", 2.0, [1.0, 1.2, 0.8]),
        )
    ]
    crossing = Number(take="crossing", column="t", over="x", top={"a": "ring"}, base={"a": "late"})
    found = crossing.of(rows)
    assert found is not None and (found.median, found.n) == (1.0, 3)
    assert found.low is not None and found.low < 0.8 and crossing.of(rows[:3]) is None


def test_of_several_rows_the_one_that_is_furthest_from_the_source_is_compared() -> None:
    theirs = CATALOG.claims["opus-cost"]
    values = theirs.of.values if theirs.of else {}
    rows = [{**theirs.rows, "gpus": gpus, "cost_ratio": value} for gpus, value in values.items()]
    rows[1]["cost_ratio"] *= 1.5
    judged = judge(theirs, rows)
    assert judged.verdict == "does not hold" and judged.expected == (list(values.values())[1],) * 2
    assert judged.number == Estimate(rows[1]["cost_ratio"], None, None, 1)


# ---- what is kept ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of documents with what the quick runs give here and now."""
    docs = tmp_path_factory.mktemp("docs")
    shutil.copy(DOCS / FILE, docs)
    out = tmp_path_factory.mktemp("out")
    for run in CATALOG.runs.values():
        if run.name in ("fabric-cost", "mesh"):
            assert main([*run.words, "--no-figures", "--out", str(out / run.name)]) == 0
            command.keep(run, out / run.name, docs / "measured", None)
    return docs


def test_claims_that_are_computed_hold(measured: Path) -> None:
    kept, said = read_kept(measured / "measured", NAMES)
    assert said == [] and kept
    for claim in CATALOG.claims.values():
        if claim.run in kept:
            judged = judge(claim, kept[claim.run].rows)
            assert judged.verdict == "holds" and judged.unexpected is None, claim.name


def test_computed_numbers_are_those_that_are_kept(measured: Path) -> None:
    """All but the time of a search."""
    now, before = (read_kept(folder, NAMES)[0] for folder in (measured / "measured", MEASURED))
    for name, kept in now.items():
        rows, committed = ([{**row, "seconds": 0} for row in each[name].rows] for each in (now, before))
        assert rows == committed, f"run: railyard claims --run {name}"
        assert from_text(as_text(name, kept), name) == kept


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: text[: len(text) // 2], "is cut short or no JSON"),
        (lambda text: text.replace(f'"{MARK}": {FORMAT}', f'"{MARK}": 9'), "has format 9, and this version reads 1"),
        (lambda text: text.replace("FabricCostRow", "OtherRow"), "holds what this version does not know (KeyError"),
        (lambda text: text.replace('"name": "fabric-cost"', '"name": "rails"'), "is of 'rails'"),
        (lambda text: text.replace('"cpu"', '"gpu"'), "does not say its cpu"),
        (lambda text: "[]", "holds no measured rows"),
        (
            lambda text: text.replace('"experiment": "fabric-cost"', '"experiment": "/x.py:X"'),
            "holds what this version does not know (KeyError: \"'/x.py:X'\")",
        ),
        (lambda text: re.sub('"cpu": "', '"cpu": "\\\\u001b[2J', text), "does not say its cpu"),
        (lambda text: re.sub('"cost_ratio": [0-9.]+', '"cost_ratio": NaN', text), "is cut short or no JSON"),
        (lambda text: text.replace('{"kind"', '{"faithful": 0, "kind"'), "has a row 0 whose key faithful is not"),
        *(
            (
                lambda text, said=said: text.replace('{"kind"', f'{{{said}"verdict": "NOT FAITHFUL: x", "kind"'),
                "has a row 0",
            )
            for said in ('"faithful": true, ', "")
        ),
    ],
)
def test_a_kept_file_that_is_none(
    change: Any, sentence: str, measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "measured").mkdir()
    shutil.copy(DOCS / FILE, tmp_path)
    text = (measured / "measured" / "fabric-cost.json").read_text()
    (tmp_path / "measured" / "fabric-cost.json").write_text(change(text))
    assert main(["claims", "opus-cost", "--docs", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "verdict: not measured" in said.out
    assert said.err.startswith(f"railyard: {tmp_path}/measured/fabric-cost.json {sentence}")
    assert said.err.count("\n") == 1


# ---- the command -----------------------------------------------------------------------------------------------------


def test_runs_that_need_root_are_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(command, "measure", lambda *_: pytest.fail("a command was run"))
    shutil.copy(DOCS / FILE, tmp_path)
    assert main(["claims", "--run", "--docs", str(tmp_path)]) == 3
    said = capsys.readouterr().err
    assert "rails" in said and "root; run: sudo " in said and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == [tmp_path / FILE]


def test_a_run_that_fails_leaves_what_is_kept_and_the_others_go_on(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = tmp_path / "docs"
    (docs / "measured").mkdir(parents=True)
    runs = {"mesh": "mesh --ports nosuch", "fabric-cost": "fabric-cost --no-figures --gpus 8192"}
    entries = {
        "runs": {name: {"arguments": words, "minutes": 0.1, "root": False} for name, words in runs.items()},
        "claims": {
            name: claim
            for name, claim in read_mapping(DOCS / FILE, "claims", "runs")["claims"].items()
            if claim["run"] in runs
        },
    }
    (docs / FILE).write_text(written_mapping(entries))
    for name in ("mesh", "fabric-cost"):
        (docs / "measured" / f"{name}.json").write_bytes((measured / "measured" / f"{name}.json").read_bytes())
    (docs / "page.md").write_text("A\n<!-- measured fabric-cost -->\n<!-- end -->\n")
    monkeypatch.chdir(tmp_path)
    assert main(["claims", "--run", "--docs", str(docs)]) == 1
    (out,) = tmp_path.glob("results/claims-*")
    said = capsys.readouterr()
    assert "mesh: the command ended with status 2: --ports: " in said.err
    kept, _ = read_kept(docs / "measured", NAMES)
    assert len(kept["fabric-cost"].rows) == 5 and len(kept["mesh"].rows) == 7
    assert "| whole switches | 8,192 | fat-tree |" in (docs / "page.md").read_text()
    assert main(["claims", "fabric-cost", "--run", "--docs", str(docs), "--results", str(out)]) == 0
    assert main(["claims", "mesh", "--run", "--docs", str(docs), "--results", str(out)]) == 1


def test_what_is_measured_for_others_names_nobody_and_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    shutil.copytree(MEASURED, "docs/measured")
    shutil.copy(DOCS / FILE, "docs")
    before = {path: path.read_bytes() for path in Path("docs").rglob("*.*")}
    assert main(["claims", "fabric-cost", "--run", "--docs", "docs", "--out", "theirs"]) == 0
    assert {path: path.read_bytes() for path in Path("docs").rglob("*.*")} == before
    assert {path.name for path in Path("theirs").iterdir()} == {"fabric-cost.json", "claims.md"}
    written = "".join(path.read_text() for path in Path("theirs").iterdir())
    assert str(tmp_path) not in written and str(Path.home()) not in written
    assert read_kept(Path("theirs"), NAMES)[0]["fabric-cost"].origin.keys() == ORIGIN
    assert "| `opus-cost` | 4.35x | 4.35 (derived by us) | ±1 % | holds |" in written
    capsys.readouterr()
    Path("theirs").rename("the[bold]irs")
    assert main(["claims", "--docs", "docs", "--compare", "the[bold]irs", "docs/measured"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"^opus-cost +4.35x +4.35x +4.35x *\n +holds +holds +holds *\n", text, re.MULTILINE)
    assert re.search(r"^the\[bold\]irs: .+, Railyard \S+ \(1 run\)\.", text, re.MULTILINE) and "\ndocuments: " in text
    assert text.count("the[bold]irs") == 2, "at the head of its column, and beside its machine"


def test_the_claims_of_the_emulated_machine_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    folder = MEASURED / "vm-debian-12"
    assert main(["claims", "--docs", str(DOCS), "--compare", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "QEMU TCG CPU" in text and "\nOf 8 claims 8 have the same verdict everywhere." in text
    assert not read_kept(folder, NAMES)[1], "every file can be read"


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (("opus-model", "rails", '"faithful": true', '"faithful": false'), "NOT FAITHFUL"),
        (("opus-model", "rails", '"step_time_s": [', '"step_time_s": ["a", '), None),
    ],
)
def test_a_folder_of_a_stranger_that_is_unfaithful_or_holds_nonsense(
    cell: tuple[str, str, str, str], shown: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim, run, old, new = cell
    text = (MEASURED / f"{run}.json").read_text()
    assert old in text
    (tmp_path / f"{run}.json").write_text(text.replace(old, new))
    status = main(["claims", claim, "--compare", str(tmp_path)])
    said = capsys.readouterr()
    if shown is None:
        assert status == 2 and said.err.count("\n") == 1
        assert f"{tmp_path} holds what Railyard" in said.err
    else:
        assert status == 0 and said.out.count(shown) == 1


def test_a_verdict_is_kept_without_the_names_of_processes() -> None:
    says = others_says(1.5, 2, [("python x.py", 1.0), ("my/tool", 0.5)])
    assert "(python x.py 1.00, my/tool 0.50)" in says
    assert without_names(f"NOT FAITHFUL: {says}, more than 0.2 (repeat 3)") == (
        "NOT FAITHFUL: other processes kept 1.50 of 2 processors busy, more than 0.2 (repeat 3)"
    )


def test_a_command_that_leaves_points_out_failed_and_an_unfaithful_one_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = MeasuredRun(name="x", arguments="mesh", minutes=0.1)
    for status in (0, 1, 8, 2, 9):
        (out := tmp_path / str(status)).mkdir()
        (out / "x.log").touch()
        monkeypatch.setattr(command, "run_command", lambda *_, out=out, status=status: (out / "x").mkdir() or status)
        if status in (0, 1, 8):
            command.measure(run, out)
            continue
        with pytest.raises(ConfigError, match=f"the command ended with status {status}"):
            command.measure(run, out)


def test_results_of_another_version_are_named_and_an_error_of_ours_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = MeasuredRun(name="x", arguments="mesh", minutes=0.1)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "manifest.json").write_text('{"railyard_results": 2, "experiment": {"experiment": "mesh"}}')
    (said,) = command.measure_all([run], tmp_path, tmp_path / "docs", None, lambda line: None, again=False)
    assert "manifest.json: written: is missing; the manifest of a run needs it" in said

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("ours")

    monkeypatch.setattr(command, "keep", broken)
    with pytest.raises(RuntimeError, match="ours"):
        command.measure_all([run], tmp_path, tmp_path / "docs", None, lambda line: None, again=False)


def test_the_claims_of_a_run_are_named_by_it() -> None:
    assert {claim.run for claim in claims_of(CATALOG, ["fabric-cost"])} == {"fabric-cost"}
    assert [claim.name for claim in claims_of(CATALOG, ["opus-cost"])] == ["opus-cost"]
    assert {claim.run for claim in claims_of(CATALOG, [], quick=True)} == {
        name for name, run in CATALOG.runs.items() if run.quick
    }
