from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from railyard.errors import AgentError
from workloads.agent.checkpoint import Checkpoint, Store


def checkpoint(step: int, job: str = "job", words: int = 100) -> Checkpoint:
    return Checkpoint(job, step, 1000 + step, np.arange(words, dtype=np.uint32) * step)


def store_of(folder: Path, *steps: int, job: str = "job") -> Store:
    store = Store(folder, job)
    for step in steps:
        store.write(checkpoint(step, job))
    return store


@pytest.mark.parametrize("words", [0, 1, 100_003])
def test_what_is_stored_is_loaded(tmp_path: Path, words: int) -> None:
    store = Store(tmp_path, "job")
    store.write(checkpoint(5, words=words))
    loaded = store.load(5)
    assert (loaded.job, loaded.step, loaded.checksum) == ("job", 5, 1005)
    assert np.array_equal(loaded.words, checkpoint(5, words=words).words)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000005"]


def test_two_complete_ones_stay_when_a_new_one_is_begun(tmp_path: Path) -> None:
    store = store_of(tmp_path, 4, 8, 12)
    assert store.steps() == (4, 8, 12), "the one before the last may be all that another member has"
    store.write(checkpoint(16))
    assert store.steps() == (8, 12, 16)


def test_what_others_wrote_is_left_alone(tmp_path: Path) -> None:
    other = store_of(tmp_path, 1, 2, job="other")
    strange = tmp_path / "checkpoint-00000003"
    strange.write_bytes(b"something else")
    store = store_of(tmp_path, 4, 5, 6, 7, 8)
    assert (store.steps(), other.steps()) == ((6, 7, 8), (1, 2))
    assert strange.exists()
    with pytest.raises(AgentError, match="it holds step 2 of job other"):
        store.load(2)


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    store = store_of(tmp_path, 4)
    with pytest.raises(AgentError, match="no checkpoint of step 8 of job job"):
        store.load(8)
    assert Store(tmp_path / "nowhere", "job").steps() == ()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_never_taken(tmp_path: Path, data: st.DataObject) -> None:
    store = store_of(tmp_path, 4, 8)
    whole = store.path(8).read_bytes()
    kind = data.draw(st.sampled_from(["cut", "flip", "more"]))
    if kind == "cut":
        bad = whole[: data.draw(st.integers(0, len(whole) - 1))]
    elif kind == "flip":
        place, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
        bad = whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :]
    else:
        bad = whole + data.draw(st.binary(min_size=1, max_size=9))
    store.path(8).write_bytes(bad)
    with pytest.raises(AgentError, match="is damaged"):
        store.load(8)
    assert store.load(4).step == 4, "the older one is"
    store.path(8).write_bytes(whole)


def test_a_write_that_was_cut_off_leaves_the_older_ones(tmp_path: Path) -> None:
    store = store_of(tmp_path, 4, 8)
    store.incoming(12).write_bytes(store.path(8).read_bytes()[:77])
    assert store.steps() == (4, 8) and store.load(8).step == 8
    store.write(checkpoint(12))
    assert store.load(12).step == 12 and not store.incoming(12).exists()


def test_a_copy_is_checked_before_it_gets_its_name(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        Store(tmp_path / folder, "job").make()
    store, source = store_of(tmp_path / "here", 0), store_of(tmp_path / "there", 8)
    store.incoming(8).write_bytes(source.path(8).read_bytes()[:-1])
    with pytest.raises(AgentError, match="the copy of the checkpoint of step 8 of job job is bad"):
        store.adopt(8)
    assert store.steps() == (0,)
    store.incoming(8).write_bytes(source.path(8).read_bytes())
    store.adopt(8)
    assert store.load(8).checksum == 1008


def test_a_disk_that_does_not_take_it_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(AgentError, match="checkpoints cannot be kept in"):
        Store(file / "in", "job").make()
    with pytest.raises(AgentError, match="the checkpoint of step 4 of job job cannot be stored in"):
        Store(tmp_path / "missing", "job").write(checkpoint(4))


def test_a_checkpoint_is_not_written_through_a_link(tmp_path: Path) -> None:
    store, target = Store(tmp_path, "a"), tmp_path / "target"
    store.incoming(4).symlink_to(target)
    with pytest.raises(AgentError, match="Too many levels of symbolic links"):
        store.write(Checkpoint("a", 4, 0, np.zeros(4, dtype=np.uint32)))
    assert not target.exists()


def test_the_folder_of_checkpoints_is_not_made_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(AgentError, match="cannot be kept"):
        Store(tmp_path / "link" / "checkpoints", "job").make()
    assert not list((tmp_path / "elsewhere").iterdir())
