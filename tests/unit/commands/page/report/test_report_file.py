"""The report of a run in one file: what is in it, that nothing of the data becomes code, its size, and bad folders."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from watch.fake_view import FakeView

from commands.claims.claim import DOCS, FILE
from commands.main import main
from commands.page.answers import as_json
from commands.page.report.comparison import Side
from commands.page.report.file import (
    LEAST_POINT,
    MOST_FIGURES,
    MOST_PX,
    Packing,
    Told,
    embedded,
    figures_in,
    inlined,
    report_html,
    write_report,
)
from commands.page.report.record import Recounted, concerning, record, text
from measure.results.folder import MANIFEST
from measure.results.manifest import build_manifest
from measure.results.partial import COMPLETE
from measure.results.results import FIGURES, REPORT, Results
from railyard.errors import ConfigError
from railyard.scale import Scale

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u2028\ud800\x00<!--"
COLUMNS = [{"name": "mode", "left": True}, {"name": "step\ns", "left": False}]


class View(FakeView):
    """A run with time lines that take about ``bars`` random bytes at full width, and fewer in fewer pixels."""

    def __init__(self, points: int = 2, bars: int = 100, name: str = "run", says: str = "") -> None:
        super().__init__()
        self.count, self.bars, self.name, self.says = points, bars, name, says
        self.asked: list[tuple[int, int]] = []

    def overview(self) -> dict[str, Any]:
        says = self.says
        points = [
            {"number": n, "title": f"point {n} {says}", "duration": 2.0, "counts": n % 2 == 0}
            for n in range(self.count)
        ]
        checks = [{"says": failed, "ok": False} for failed in ("9 ms late", "of another row")]
        return {
            "format": 1,
            "name": f"{self.name}{says}",
            "experiment": "rails",
            "command": f"railyard run {says}",
            "written": "2026-01-31",
            "scale": {"says": "1/8"},
            "tables": [{"title": "times", "columns": COLUMNS, "rows": [{"cells": [f"on-demand {says}", "1.5"]}]}],
            "findings": [f"A step grows. {says}"],
            "notes": [says],
            "stamps": [{"kind": "NOT FAITHFUL", "says": f"timers {says}"}],
            "verdicts": [{"title": says, "verdict": "NOT FAITHFUL: 9 ms late", "checks": checks}],
            "points": points,
        }

    def timeline(
        self, point: int, start: float | None = None, end: float | None = None, px: int = 1200
    ) -> dict[str, Any]:
        self.asked.append((point, px))
        assert (start, end) == (0.0, 2.0)
        count = self.bars * px // MOST_PX
        noise = [hashlib.sha256(f"{point} {n}".encode()).hexdigest()[:16] for n in range(count)]
        return {"point": point, "labels": [self.says], "bars": noise}

    def strips(
        self, point: int, start: float | None = None, end: float | None = None, px: int = 1200
    ) -> dict[str, Any]:
        return {"t": [1.0], "rates": [], "steps": [], "of": point}


class Read(HTMLParser):
    """Elements of a page with their attributes, the text of scripts and styles, and all other text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inline: dict[str, list[str]] = {"script": [], "style": []}
        self.said = ""
        self._inside = ""
        self.feed(page.decode("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag if tag in self.inline else ""
        if self._inside:
            self.inline[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.inline[self._inside][-1] += data
        else:
            self.said += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.found if name == tag]


@pytest.fixture
def side(tmp_path: Path) -> Side:
    return Side.read(folder_of(tmp_path / "run"))


def folder_of(path: Path, says: str = "", **more: Any) -> Path:
    manifest = build_manifest(
        experiment={"experiment": "rails", "workload": f"w{says}"}, seed=1, scale=Scale(0.1), plans=[], groups={},
        planned=0, ended=COMPLETE, command=f"railyard run {says}", machine={"cpu": says}, **more,
    )  # fmt: skip
    results = Results.create(path, manifest)
    results.free()
    return path


def page_of(side: Side, view: View, figures: Mapping[str, bytes] | None = None, compared: Any = None) -> bytes:
    return b"".join(report_html([Told(view, side, figures or {})], compared))


def data_of(page: Read) -> Any:
    place = [n for n, attrs in enumerate(page.all("script")) if attrs.get("id") == "railyard-data"]
    return json.loads(gzip.decompress(base64.b64decode(page.inline["script"][place[0]])))


def test_the_data_are_those_of_the_run(side: Side) -> None:
    data = data_of(Read(page_of(side, View(points=3))))
    (run,) = data["runs"]
    assert run["overview"] == View(points=3).overview() and data["comparison"] is None
    assert sorted(run["timelines"]) == sorted(run["strips"]) == ["0", "1", "2"]
    assert run["timelines"]["2"] == View().timeline(2, 0.0, 2.0, MOST_PX)
    assert run["strips"]["1"]["of"] == 1


def test_the_record_is_readable_without_scripts(side: Side) -> None:
    page = Read(page_of(side, View(), {"step-time.png": b"\x89PNG image"}))
    for said in ("on-demand", "1.5", "A step grows.", "NOT FAITHFUL", "timers", "late", "1/8", "python"):
        assert said in page.said
    assert page.said.count("9 ms late") == page.said.count("of another row") == 1, "each cause once"
    image = next(attrs for attrs in page.all("img"))
    assert (image["data-run"], image["data-file"]) == ("0", "step-time.png")
    assert base64.b64decode(str(image["src"]).removeprefix("data:image/png;base64,")) == b"\x89PNG image"
    assert page.all("details")[-1] == {"id": "record", "class": "panel", "open": None}
    assert "opus-slope" in page.said and "neither supports nor refutes" in page.said


def test_every_script_and_style_is_named_in_the_policy_and_nothing_else_may_run_or_load(side: Side) -> None:
    page = Read(page_of(side, View(says=HOSTILE)))
    policies = [attrs for attrs in page.all("meta") if attrs.get("http-equiv") == "Content-Security-Policy"]
    parts = dict(part.strip().split(" ", 1) for part in str(policies[0]["content"]).split(";"))
    assert parts["default-src"] == parts["base-uri"] == parts["form-action"] == "'none'"
    assert parts["img-src"] == "data:" and not {"connect-src", "frame-src"} & parts.keys()
    assert [tag for tag, _ in page.found].index("meta") < [tag for tag, _ in page.found].index("style")
    scripts = [
        content
        for attrs, content in zip(page.all("script"), page.inline["script"], strict=True)
        if attrs.get("type") != "application/json"
    ]
    for name, contents in (("script-src", scripts), ("style-src", page.inline["style"])):
        hashes = [base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in contents]
        assert contents and set(parts[name].split()) == {f"'sha256-{each}'" for each in hashes}
        assert "unsafe" not in parts[name]


def test_no_address_is_loaded(side: Side) -> None:
    page = Read(page_of(side, View(says=HOSTILE)))
    for _, attrs in page.found:
        assert not {name for name in attrs if name.startswith("on")}
        for name in ("src", "href", "action", "poster", "data", "srcset", "xlink:href"):
            assert str(attrs.get(name, "#")).startswith(("data:", "#")), attrs
    styles = "".join(page.inline["style"])
    assert "@import" not in styles and not re.search(r"url\((?!['\"]?(data:|#))", styles)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    side = Side.read(folder_of(tmp_path / "run", HOSTILE))
    hostile = Read(page_of(side, View(says=HOSTILE), {f"{HOSTILE.replace('/', '')}.png": b"x"}))
    harmless = Read(page_of(side, View(says="name"), {"name.png": b"x"}))
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in harmless.found]
    assert "alert(1)" in hostile.said
    assert data_of(hostile)["runs"][0]["overview"]["notes"] == [HOSTILE]


def test_hostile_names_of_a_comparison_stay_text() -> None:
    row = {"cells": [HOSTILE] * 2}
    compared = {
        "names": [HOSTILE, HOSTILE], "notes": [HOSTILE], "remarks": [HOSTILE],
        "unmatched": [{"run": 1, "title": HOSTILE}],
        "differs": [{"group": "setting", "key": HOSTILE, "values": [HOSTILE, "-"]}],
        "tables": [{"title": HOSTILE, "columns": COLUMNS, "rows": [row]}],
    }  # fmt: skip
    claims = {"title": "Claims", "notes": [], "columns": COLUMNS, "rows": [row]}
    runs = [Recounted(View(says=HOSTILE).overview(), claims=claims)] * 2
    found = Read("".join(record(runs, compared)).encode())
    assert not found.all("script") and not found.all("img") and found.said.count("alert(1)") > 10


def test_text_is_what_html_can_hold() -> None:
    assert text("a\ud800b\x00c\x85\u2028<&\"'") == "a\ufffdb\ufffdc\ufffd\u2028&lt;&amp;&quot;&#x27;"
    text("\udfff").encode()


def test_time_lines_are_thinned_to_the_room_and_those_that_count_come_first() -> None:
    view = View(points=6, bars=20_000)
    found = embedded([view], [view.overview()], None, 120_000)
    assert [point for point, px in view.asked if px == MOST_PX] == [0, 2, 4, 1, 3, 5]
    assert found.left_out == [[]]
    data = json.loads(gzip.decompress(base64.b64decode(b"".join(found.packing.base64()))))
    assert {len(each["bars"]) for each in data["runs"][0]["timelines"].values()} <= {20_000 // 4, 20_000 // 16}
    assert found.packing.size < 130_000


def test_time_lines_for_which_there_is_no_room_are_left_out_and_named(side: Side) -> None:
    view = View(points=40, bars=20_000)
    found = embedded([view], [view.overview()], None, 10 * LEAST_POINT)
    assert 25 <= len(found.left_out[0]) < 40 and not set(found.left_out[0]) & {0, 2}
    assert found.packing.size < 11 * LEAST_POINT + 10_000
    data = json.loads(gzip.decompress(base64.b64decode(b"".join(found.packing.base64()))))
    assert data["runs"][0]["timelines"].keys() == data["runs"][0]["strips"].keys()
    assert len(data["runs"][0]["timelines"]) == 40 - len(found.left_out[0])
    count = len(found.left_out[0])
    sentence = f"The time lines of {count} of 40 points are not in this file; railyard watch shows them."
    assert data["runs"][0]["overview"]["notes"] == ["", sentence] == found.overviews[0]["notes"]


def test_two_runs_share_the_room() -> None:
    views = [View(points=4, bars=40_000, name=name) for name in "ab"]
    found = embedded(views, [view.overview() for view in views], {"names": ["a", "b"]}, 200_000)
    data = json.loads(gzip.decompress(base64.b64decode(b"".join(found.packing.base64()))))
    assert data["comparison"] == {"names": ["a", "b"]}
    assert [run["overview"]["name"] for run in data["runs"]] == ["a", "b"]
    sizes = [len(as_json(run["timelines"])) for run in data["runs"]]
    assert max(sizes) < 2 * min(sizes) and found.packing.size < 220_000


def test_a_piece_that_is_taken_back_leaves_no_trace() -> None:
    packing, noise = Packing(), "".join(hashlib.sha256(str(n).encode()).hexdigest() for n in range(500))
    packing.add("[1")
    assert not packing.add_within(f',"{noise}"', 1000) and packing.add_within(",2", 1000)
    packing.add("]")
    assert gzip.decompress(base64.b64decode(b"".join(packing.base64()))) == b"[1,2]"


def test_a_file_of_the_page_that_would_end_its_script_early_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<head>\n</head><body><script src="a.js"></script></body>')
    for content in ("'</script>'", "// <!-- x"):
        (tmp_path / "a.js").write_text(content)
        with pytest.raises(ValueError, match="would end it early"):
            b"".join(inlined("t", [], [], tmp_path, own=()))


def test_large_figures_are_named_and_not_held(tmp_path: Path) -> None:
    (tmp_path / FIGURES).mkdir()
    (tmp_path / FIGURES / "a.png").write_bytes(b"a" * 10)
    (tmp_path / FIGURES / "b.png").write_bytes(b"b" * (MOST_FIGURES - 5))
    (tmp_path / FIGURES / "c.png").symlink_to("a.png")
    found, left = figures_in(tmp_path)
    assert found == {"a.png": b"a" * 10}
    assert left == ["Figure b.png (4.0 MB) is not in this file; the results folder has it."]


def test_the_file_is_in_the_folder_and_replaces_the_last_one(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run")
    path = write_report([folder])
    assert path == folder / REPORT
    first = path.stat().st_ino
    assert write_report([folder]).stat().st_ino != first
    assert [each.name for each in folder.iterdir() if each.name.startswith(".")] == []
    elsewhere = write_report([folder], tmp_path / "x.html")
    assert elsewhere == tmp_path / "x.html" and elsewhere.stat().st_size > 100_000


def test_values_that_this_version_does_not_write_are_one_sentence_and_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise TypeError("'<' not supported")

    folder = folder_of(tmp_path / "run")
    monkeypatch.setattr("commands.page.report.file.embedded", broken)
    with pytest.raises(ConfigError, match=r"run holds what Railyard .* does not write"):
        write_report([folder])
    assert [path.name for path in folder.iterdir()] == ["manifest.json"]


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the run ``mesh`` of the claims, which is computed in a second."""
    out = tmp_path_factory.mktemp("results") / "out"
    words = ["mesh", "--width", "3", "--height", "3", "--ports", "8", "--exact"]
    assert main(["run", *words, "--no-figures", "--out", str(out)]) == 0
    return out


@pytest.fixture
def mesh(computed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(computed, tmp_path / "out"))


def evidence(folder: Path, **more: Any) -> dict[str, tuple[str, str]]:
    side = Side.read(folder)
    found = concerning(side.kind, side.recorded, **more)
    return {} if found is None else {row["cells"][0].partition(":")[0]: row["cells"][-2:] for row in found["rows"]}


def test_a_claim_is_judged_by_the_run_that_is_its_own(mesh: Path) -> None:
    found = evidence(mesh)
    assert found["pip-matchings"] == ["holds", "this run"]
    assert found["pip-32"][0] == "holds" and found["pip-32"][1].startswith("documents: 20")
    assert evidence(mesh, docs=mesh) == {}
    shutil.copy(DOCS / FILE, mesh)
    assert evidence(mesh, docs=mesh) == {
        claim: ["not measured", "-"]
        for claim in ("pip-matchings", "pip-32", "pip-cover", "pip-cover-3x3", "pip-cover-5x5")
    }


@pytest.mark.parametrize(("key", "value"), [("ports", 6), ("exact", False), ("seed", 9)])
def test_a_run_with_another_setting_is_not_the_claims(mesh: Path, key: str, value: object) -> None:
    manifest = json.loads((mesh / MANIFEST).read_text())
    manifest["experiment"][key] = value
    (mesh / MANIFEST).write_text(json.dumps(manifest))
    assert evidence(mesh)["pip-matchings"][1].startswith("documents: ")
    side = Side.read(mesh)
    found = concerning(side.kind, side.recorded)
    assert found is not None and "neither supports nor refutes" in found["notes"][0]


def test_a_claim_of_the_run_that_does_not_hold_says_so(mesh: Path) -> None:
    rows = json.loads((mesh / "summary.json").read_text())
    rows[2]["routable"] = False
    (mesh / "summary.json").write_text(json.dumps(rows))
    assert evidence(mesh)["pip-matchings"] == ["does not hold", "this run"]
    manifest = json.loads((mesh / MANIFEST).read_text())
    (mesh / MANIFEST).write_text(json.dumps({**manifest, "predicted": True}))
    assert evidence(mesh)["pip-matchings"][1].startswith("documents: ")


def test_settings_that_this_version_does_not_know_are_those_of_no_claim(mesh: Path) -> None:
    manifest = json.loads((mesh / MANIFEST).read_text())
    for settings in ({"experiment": "mesh", "nothing": 1}, {"experiment": "mesh", "width": "wide"}):
        (mesh / MANIFEST).write_text(json.dumps({**manifest, "experiment": settings}))
        assert evidence(mesh)["pip-matchings"][1].startswith("documents: ")
