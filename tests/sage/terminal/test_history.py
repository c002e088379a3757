"""The history is private, holds no keys, and survives damage."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from lyra.sage.terminal.completion import PromptHistory


def test_prompts_are_kept_in_a_private_file(tmp_path: Path) -> None:
    """Readable for its owner alone; found again by the next run; a repeated prompt is kept once."""
    path = tmp_path / "data" / "sage-history"
    history = PromptHistory(path)
    history.add("first")
    history.add("second\nline")
    history.add("second\nline")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert PromptHistory(path).entries == ["first", "second\nline"]


def test_keys_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "sage-history"
    PromptHistory(path).add("use sk-ant-abcdefghijklmnop1234567890 for it")
    assert "abcdefghijklmnop" not in path.read_text()
    assert "***" in path.read_text()


def test_a_damaged_line_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "sage-history"
    path.write_bytes(b'"good"\n{"no\n42\n\xff\xfe\n"also good"\n')
    assert PromptHistory(path).entries == ["good", "also good"]


def test_a_long_history_is_shortened(tmp_path: Path) -> None:
    path = tmp_path / "sage-history"
    path.write_text("".join(f"{json.dumps(f'entry {number}')}\n" for number in range(2000)))
    history = PromptHistory(path)
    history.add("last")
    assert len(PromptHistory(path).entries) == 1000
    assert PromptHistory(path).entries[-1] == "last"


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = PromptHistory(tmp_path / "file" / "sage-history")
    history.add("x")
    assert history.entries == ["x"]
