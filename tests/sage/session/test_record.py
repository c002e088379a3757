"""A record says in one line what a session is, and is on disk whole or not at all."""

from __future__ import annotations

import os
import stat

import msgspec
import pytest

from lyra.core.ids import Entropy
from lyra.sage.session.record import (
    PREVIEW_LENGTH,
    SessionRecord,
    is_session_id,
    make_session_folder,
    new_session_id,
    preview,
    read_record,
    sessions_folder,
    write_record,
)

NOON = 1_794_916_800.0  # 2026-11-17, 12:00 in UTC


def test_ids_sort_by_time():
    """The day, the time of the day and a random end: later ids are larger, also across midnight."""
    entropy = Entropy(1)
    ids = [new_session_id(NOON + 3 * number, entropy) for number in range(30_000)]
    assert ids == sorted(ids)
    assert ids[0].startswith("20261117-")
    assert ids[-1].startswith("20261118-")
    assert all(map(is_session_id, ids))
    assert len({new_session_id(NOON, entropy) for _ in range(100)}) > 90


@pytest.mark.parametrize(
    "text", ["", "..", "20261117-ab12cd/..", "20261117-ab12c", "20261117-AB12CD", "20261117-ab12cd\n"]
)
def test_only_ids_are_ids(text):
    """An id is the name of a folder: nothing else passes for one."""
    assert not is_session_id(text)


def test_a_session_folder_is_private_and_new(tmp_path, monkeypatch):
    """Two sessions never share a folder, even where their ids would be the same; the umask changes nothing."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert sessions_folder() == tmp_path / "lyra" / "sessions"
    before = os.umask(0o277)
    try:
        folders = [make_session_folder(NOON, Entropy(7)), make_session_folder(NOON, Entropy(7))]
    finally:
        os.umask(before)
    assert folders[0] != folders[1]
    for folder in (*folders, folders[0].parent, folders[0].parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_previews_are_one_safe_line():
    """Line ends are blanks, escape sequences can be seen, keys cannot, and the length is bounded."""
    assert preview("fix\n  the\tbug") == "fix the bug"
    assert "\x1b" not in preview("a\x1b]0;title\x07b")
    assert preview("a\x1b[2J") == "a⟨U+001B⟩[2J"
    assert "a1b2" not in preview("use sk-" + "a1b2c3d4" * 4)
    assert len(preview("word " * 500)) == PREVIEW_LENGTH
    assert len(preview("\x1b" * 500)) == PREVIEW_LENGTH


def test_the_label():
    """The title, else the first prompt, else the id."""
    record = SessionRecord(id="20261117-ab12cd", folder="/p")
    assert record.label == "20261117-ab12cd"
    record = record.with_prompt("first\x1b", now=5.0).with_prompt("second", now=6.0)
    assert (record.turns, record.first_prompt, record.last_prompt, record.updated_at) == (
        2,
        "first⟨U+001B⟩",
        "second",
        6,
    )
    assert record.label == record.first_prompt
    assert msgspec.structs.replace(record, title="A title").label == "A title"


def test_a_record_on_disk(tmp_path):
    """It comes back as it was written, readable by its owner alone; later fields of another version do not matter."""
    folder = tmp_path / "20261117-ab12cd"
    folder.mkdir()
    record = SessionRecord(id=folder.name, folder="/p", title="t", cost_usd=None, turns=3, state="failed", parent="x")
    assert read_record(folder) is None
    write_record(folder, record)
    assert read_record(folder) == record
    assert stat.S_IMODE((folder / "record.json").stat().st_mode) == 0o600
    assert os.listdir(folder) == ["record.json"]
    (folder / "record.json").write_bytes(msgspec.json.encode({**msgspec.structs.asdict(record), "colour": "red"}))
    assert read_record(folder) == record


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"id": "20261117-ab12cd"}', b'{"id": "other", "folder": ""}', b"\xff"]
)
def test_a_damaged_record_is_none(tmp_path, data):
    """Damaged, of another session, or a link: no record."""
    folder = tmp_path / "20261117-ab12cd"
    folder.mkdir()
    (folder / "record.json").write_bytes(data)
    assert read_record(folder) is None
    good = tmp_path / "good.json"
    good.write_bytes(msgspec.json.encode(SessionRecord(id=folder.name, folder="/p")))
    (folder / "record.json").unlink()
    (folder / "record.json").symlink_to(good)
    assert read_record(folder) is None
