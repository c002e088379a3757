"""Grep on a tree with odd names and odd files: ripgrep and our own search give the same rows, byte by byte."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.tools.builtin.conftest import Tools
from tests.tools.builtin.test_search import grep, needs_ripgrep

LONG = b"x" * 300_000
ODD: dict[bytes, bytes] = {
    # names
    b"-rf": b"needle\n",
    b"--glob=!*": b"needle\n",
    b"two words.py": b"needle\n",
    b"new\nline.py": b"needle\n",
    b"tab\there": b"needle\n",
    b"quote'\".py": b"needle\n",
    b"back\\slash.py": b"needle\n",
    b"star*.py": b"needle\n",
    b"[brackets].py": b"needle\n",
    b"{braces}.py": b"needle\n",
    b"!bang.py": b"needle\n",
    b"#hash.py": b"needle\n",
    b"$(touch made).py": b"needle\n",
    "größe/ünïcode.py".encode(): "nädle needle\n".encode(),
    "emoji 🎼.md".encode(): b"needle\n",
    b".dot/.file": b"needle\n",
    b"a:1:b.py": b"needle\n",
    b"no-utf8-\xe9\xff.py": b"needle\n",
    b"no-utf8-\xfe/in.py": b"needle\n",
    b"deep/" * 12 + b"end.py": b"needle\n",
    # files that other tools would pass over
    b".gitignore": b"*.py\nignored/\n!needle\n",
    b".ignore": b"*.md\n",
    b".rgignore": b"*\n",
    b"ignored/a.py": b"needle\n",
    b"sub/.gitignore": b"*\n",
    b"sub/a.py": b"needle\n",
    # content
    b"empty.py": b"",
    b"no-newline.py": b"needle",
    b"crlf.py": b"one\r\nneedle\r\nthree\r\n",
    b"only-cr.py": b"one\rneedle\rthree",
    b"blank.py": b"\n\n\nneedle\n\n\n",
    b"binary-early.bin": b"needle\n\0\n",
    b"binary-late.bin": b"needle\n" * 20_000 + b"\0",
    b"just-nul": b"\0",
    b"latin.txt": b"caf\xe9 needle\n",
    b"broken-utf8.txt": b"\xff\xfe\xfd needle \xc3\x28\n",
    b"bom.txt": b"\xef\xbb\xbfneedle\n",
    b"utf16le.txt": "\ufeffneedle\n".encode("utf-16-le"),
    b"utf16be.txt": "\ufeffneedle\n".encode("utf-16-be"),
    b"huge-line.txt": LONG + b" needle " + LONG + b"\nneedle\n",
    b"huge-line-only.txt": LONG + b"needle",
    b"many.txt": b"needle\n" * 1_000,
    b"separators.txt": "needle\u2028needle\u0085needle\vneedle\fneedle\n".encode(),
}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("odd")
    for name, data in ODD.items():
        path = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    (root / "link.py").symlink_to("no-newline.py")
    (root / "circle").symlink_to(root)
    os.mkfifo(root / "pipe.py")
    return root


QUESTIONS: list[dict[str, Any]] = [
    {"pattern": "needle"},
    {"pattern": "needle", "output_mode": "count", "head_limit": 2_000},
    {"pattern": "needle", "output_mode": "content", "head_limit": 3_000},
    {"pattern": "needle", "output_mode": "content", "context": 1, "path": "crlf.py"},
    {"pattern": "needle", "output_mode": "content", "context": 2, "path": "blank.py"},
    {"pattern": "^needle$", "output_mode": "content", "head_limit": 3_000},
    {"pattern": "NEEDLE", "ignore_case": True, "output_mode": "count"},
    {"pattern": "n.edle", "glob": "*.py", "output_mode": "content"},
    {"pattern": "needle", "glob": "**/a.py"},
    {"pattern": "needle", "glob": "sub/**"},
    {"pattern": "needle", "glob": "*.{md,txt}", "output_mode": "count"},
    {"pattern": "needle", "glob": "-rf"},
    {"pattern": "needle", "type": "md"},
    {"pattern": "needle", "path": "-rf", "output_mode": "content"},
    {"pattern": "needle", "path": "ignored"},
    {"pattern": "needle", "path": "binary-late.bin"},
    {"pattern": "needle", "path": "just-nul"},
    {"pattern": "-e needle"},
    {"pattern": "--files"},
    {"pattern": r"nee\wle\s", "multiline": True, "output_mode": "count"},
    {"pattern": "ö|ä", "output_mode": "content"},
    {"pattern": r"\bneedle\b", "output_mode": "files_with_matches"},
    {"pattern": "x{10}needle", "output_mode": "count"},
]


@needs_ripgrep
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: " ".join(map(str, question.values())))
def test_the_same_rows_with_and_without_ripgrep(odd: Path, question: dict[str, Any]):
    with_it = grep(odd, ripgrep=True, **question)
    assert with_it == grep(odd, ripgrep=False, **question)
    assert not (odd / "made").exists()


def test_every_answer_can_be_sent(odd: Path):
    """A name that is no UTF-8 is shown as far as it is."""
    for ripgrep in (True, False):
        grep(odd, ripgrep=ripgrep, pattern="needle").encode()
        assert "no-utf8-\ufffd\ufffd.py" in grep(odd, ripgrep=ripgrep, pattern="needle", glob="no-utf8*.py")
    Tools(odd).Glob(pattern="*").encode()


def test_ignore_files_are_not_read(odd: Path):
    """Neither by one engine nor by the other: what is there can be found."""
    for ripgrep in (True, False):
        names = grep(odd, ripgrep=ripgrep, pattern="needle", glob="a.py").split("\n")
        assert names == ["ignored/a.py", "sub/a.py"]


def test_long_lines_are_cut_and_binary_files_left_out(odd: Path):
    for ripgrep in (True, False):
        output = grep(odd, ripgrep=ripgrep, pattern="needle", path="huge-line.txt", output_mode="content")
        first, second = output.split("\n")
        assert len(first) < 2_100
        assert first.endswith("(600008 characters)")
        assert second == "huge-line.txt:2:needle"
        assert grep(odd, ripgrep=ripgrep, pattern="needle", path="binary-early.bin") == "nothing matches"


def test_glob_finds_every_name_as_it_is(odd: Path):
    """And a model can read what it found."""
    tools = Tools(odd)
    for name in (
        "-rf",
        "two words.py",
        "quote'\".py",
        "größe/ünïcode.py",
        "emoji 🎼.md",
        "a:1:b.py",
        "$(touch made).py",
    ):
        assert name in tools.Glob(pattern=os.path.basename(name)).split("\n")
        assert "needle" in tools.Read(file_path=name)
    assert "link.py" not in tools.Glob(pattern="*.py").split("\n")
    assert "pipe.py" not in tools.Glob(pattern="*.py").split("\n")
