from __future__ import annotations

import os
from pathlib import Path

from commands.page.points import open_below


def test_links_are_not_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "results", tmp_path / "secret"
    (inside / "points").mkdir(parents=True)
    outside.mkdir()
    (outside / "x.jsonl").write_text("secret\n")
    (inside / "link.jsonl").symlink_to(outside / "x.jsonl")
    (inside / "points" / "000").symlink_to(outside)
    root = os.open(inside, os.O_RDONLY)
    for name in ("link.jsonl", "points/000/x.jsonl", "no"):
        assert open_below(root, Path(name)) is None, name
    os.close(root)
