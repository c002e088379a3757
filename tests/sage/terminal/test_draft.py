"""The draft of a session: kept while it is typed, taken over once, never from a session that is open."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from lyra.sage.terminal.loop import Draft, drafts_folder, take_left_over


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)


def draft(session: str, text: str, folder: str = "/work") -> Draft:
    kept = Draft(session, folder, lambda: text, lambda words: words.replace("my-key", "***"))
    kept.write()
    return kept


def abandon(kept: Draft) -> None:
    """As a crash leaves it: the file is there, and nothing has locked it."""
    assert kept._file is not None
    os.close(kept._file)


def test_a_draft_that_was_left_over_is_taken_once_and_by_its_folder() -> None:
    abandon(draft("a", "half a sentence"))
    assert take_left_over("/elsewhere") == ""
    assert take_left_over("/work") == "half a sentence"
    assert take_left_over("/work") == ""
    assert list(drafts_folder().iterdir()) == []


def test_the_draft_of_an_open_session_stays_with_it() -> None:
    """Two sessions of one folder: what is typed in the one does not appear in the other."""
    kept = draft("a", "being typed")
    assert take_left_over("/work") == ""
    kept.close()
    assert take_left_over("/work") == "being typed"  # its terminal was closed


def test_what_was_sent_leaves_no_file() -> None:
    texts = ["typed", ""]
    kept = Draft("a", "/work", lambda: texts[0], str)
    kept.write()
    texts.pop(0)
    kept.close()
    assert list(drafts_folder().iterdir()) == []


def test_a_draft_is_private_and_has_no_keys() -> None:
    draft("a", f"use my-key and sk-ant-api03-{'x' * 40}")
    (path,) = drafts_folder().iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert "my-key" not in path.read_text()
    assert "x" * 40 not in path.read_text()


async def test_it_is_written_soon_after_a_key() -> None:
    """Many keys are one write."""
    texts = [""]
    kept = Draft("a", "/work", lambda: texts[0], str)
    for letter in "typed":
        texts[0] += letter
        kept.schedule()
    assert not drafts_folder().exists()
    while not drafts_folder().exists():
        await asyncio.sleep(0.01)
    (path,) = drafts_folder().iterdir()
    assert '"typed"' in path.read_text()
    kept.close()


def test_a_damaged_file_is_no_draft() -> None:
    abandon(draft("a", "good"))
    (drafts_folder() / "b.json").write_text('{"folder": "/work", "te')
    assert take_left_over("/work") == "good"
