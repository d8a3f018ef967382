"""Blocks of documents: how they are read, what counts as the output that is shown, and that a test runs each."""

from __future__ import annotations

from pathlib import Path

import pytest
from blocks import Block, blocks, node, renewed, replaced, steps
from checkout import ROOT
from reader import documents, follow
from terminal import Terminal, programs

PAGE = """\
Save this as `sums.py`:

```python title="sums.py"
print(1 + 1)
```

<!-- block: exact -->
```console
$ python \\
    sums.py
2
$ seq 9
1
...
9
```

- in a list:

  <!-- block: status 3 -->
  ```console
  $ (exit 3)
  ```
"""
POINTS = """\
scale 1/84, time 1.2: steps are expected to take 1.9% too long
  [1/2] on-demand, 0 ms: step 1.2802 s (model 1.2793 s), faithful
  [2/2] on-demand, 200 ms: step 1.68 s (model 1.6793 s), faithful
mode       delay    step  faithful
on-demand      0  1.2824  yes
Faithful: every point keeps every limit; links reached 100.0% of line rate or
more.
Results in first
"""
DISTURBED = """\
scale 1/4, time 2: steps are expected to take 0.9% too long
  [1/2] on-demand, 0 ms: step 1.2802 s (model 1.2793 s), NOT FAITHFUL: all
    cores were busy 97% of the time (limit 25%)
  disturbed, so it is measured again (attempt 2 of 3)
  [1/2] on-demand, 0 ms: step 1.2802 s (model 1.2793 s), faithful
  [2/2] on-demand, 200 ms: step 1.6801 s (model 1.6793 s), NOT FAITHFUL: all
    cores were busy 97% of the time (limit 25%)
mode       delay     step  faithful
on-demand      0  11.2824  NO
NOT FAITHFUL: 1 of 2 points; do not trust their numbers.
  on-demand 200 ms: all cores were busy 97% of the time (limit 25%)
Results in first
"""


def test_blocks_are_read_with_their_notes_titles_and_places() -> None:
    saved, typed, listed = blocks(PAGE)
    assert (saved.language, saved.title, saved.text) == ("python", "sums.py", "print(1 + 1)\n")
    assert "`sums.py`" in saved.before and "`sums.py`" not in typed.before
    assert typed.note("exact") == "" and typed.note("status") is None and listed.note("status") == "3"
    assert PAGE.splitlines()[typed.first].startswith("$ python")
    assert (steps(typed)[0].typed, steps(typed)[0].shown) == ("python sums.py", ("2",))
    assert [step.typed for step in steps(Block("sh", None, "# why\nmake \\\n  all\nls\n", 0))] == ["make    all", "ls"]
    with pytest.raises(AssertionError, match="is no note"):
        blocks("<!-- block: loud -->\n```sh\nls\n```\n")


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("up 0.9 s on rail0", "up 12.1 s  on rail0", True),
        ("rail0: 10.1.0.1 g0, circuits 1-8", "rail0: 10.1.0.1 g0, circuits 1-6", False),
        ("2 packets of g0, time 409ms", "3 packets of g0, time 1.2ms", True),
        ("2 packets of g0", "2 packets of g1", False),
        ("over +31.5 and -0.2", "over -1 and +12.75", True),
        (POINTS, DISTURBED, True),
        (POINTS, DISTURBED.replace("[2/2] on-demand", "[2/2] one-shot"), False),
        (POINTS, DISTURBED.replace("mode ", "modus "), False),
        (POINTS, POINTS.replace("Results", "Result"), False),
        (POINTS, POINTS + "one more\n", False),
        (POINTS, POINTS.replace("more.\n", "more.\nReport (opens in a browser): first/report.html\n"), False),
        ("first\n...\nlast", "first\n1\n2\nlast", True),
        ("first\n...\nlast", "first\nlast", True),
        ("first\n...\nlast", "first\nlast\nafter", False),
        ("", "anything", False),
        (
            "mine, 2 s: faithful\n  ok  0.1 of 2 used",
            "mine, 3 s: NOT FAITHFUL\n  NO  1.2 of 2 used (apt 0.3),\n      at most 0.2",
            True,
        ),
    ],
)
def test_what_differs_by_machine_may_differ_and_nothing_else(shown: str, printed: str, same: bool) -> None:
    lines = renewed(shown.splitlines(), printed.splitlines())
    assert (lines is not None) == same
    if lines is not None and "..." not in shown:
        assert renewed(lines, printed.splitlines(), exact=True) == lines, "what is renewed is what was printed"
    assert renewed(["2 of 3"], ["2 of 4"], exact=True) is None


def test_what_was_printed_takes_the_place_of_what_was_shown() -> None:
    block = blocks(PAGE)[1]
    page = replaced(PAGE, block, [["3", "4"], ["1", "...", "9"]])
    assert page == PAGE.replace("sums.py\n2\n", "sums.py\n3\n4\n")


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, programs(tmp_path / "programs"), apart=False)


def test_a_reader_does_what_a_page_says(tmp_path: Path, terminal: Terminal) -> None:
    with terminal:
        assert follow(PAGE, tmp_path, terminal) == PAGE
        with pytest.raises(AssertionError, match=r"(?s)python sums.py.*-3\n\+2"):
            follow(PAGE.replace("\n2\n", "\n3\n"), tmp_path, terminal)
        assert follow(PAGE.replace("\n2\n", "\n3\n"), tmp_path, terminal, renew=True) == PAGE
        with pytest.raises(AssertionError, match="status 3"):
            follow(PAGE.replace("status 3", "status 4"), tmp_path, terminal)
        with pytest.raises(AssertionError, match="the prompt is"):
            follow("```console\n$ true\nmininet> circuits\n```\n", tmp_path, terminal)
        assert terminal.enter("sudo railyard --version")[0].startswith("railyard ")
        assert terminal.enter("sleep 60 &") == terminal.enter("kill %1; wait") == []
        assert terminal.enter("echo at $PWD; sleep 60", interrupt=True) == [f"at {tmp_path}", "^C"]


@pytest.mark.parametrize("page", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_is_run_by_a_test(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        where = f"{page.name}, line {block.first}"
        shown_by = block.note("shown by")
        if shown_by is not None:
            assert node(ROOT, shown_by), f"{where}: there is no test {shown_by}"
        elif block.title is not None:
            assert f"`{block.title}`" in block.before, f"{where}: the text above does not name {block.title}"
        else:
            assert block.language in ("console", "sh", "bash", "python"), f"{where}: nothing runs this block"
        if block.language == "console":  # a sentence of an error is not folded on a terminal either
            lines = [line for line in block.text.splitlines() if not line.startswith("railyard: ")]
            assert max(map(len, lines)) <= 80, f"{where}: {max(lines, key=len)} is wider than a terminal"
