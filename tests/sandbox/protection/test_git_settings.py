"""Git's settings files are read as git reads them."""

from __future__ import annotations

import os
import subprocess

import pytest

from lyra.sandbox.protection.git_repositories import parse, read_settings

TEXTS = [
    "[a]\nx = v\n",
    '[a]\nx = ../"b c"d\n',
    "[a]\nx = v;c\n",
    "[a]\nx = v # c\n",
    '[a]\nx = "v # no comment"\n',
    "[a]\nx = one\\\ntwo\n",
    "[a]\nx = one \\\n\n",
    '[a]\nx = "a\\tb\\n\\"c\\"\\\\"\n',
    "[a]x=v\n[b] y = w",
    '[a "B \\"c\\""]\nX-y = v\n',
    "[A.b]\nx = v\n",
    "# c\n; c\n[a]\r\nx = v \r\n",
    "[a]\nx\ny = v\n",
    '[a]\nx = " v "  \n',
    "[a]\nx =\n",
    "\ufeff[a]\nx = v\n",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_syntax_is_gits_own(tmp_path, text):
    """A real git reads the same."""
    (tmp_path / "config").write_bytes(text.encode())
    command = ["git", "config", "-f", "config", "-z", "--list"]
    listed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True).stdout.decode().split("\0")[:-1]
    expected = [tuple(entry.split("\n", 1)) for entry in listed if "\n" in entry]
    read = [
        (".".join(filter(None, (setting.section, setting.subsection, setting.name))), setting.value)
        for setting in parse(text)
    ]
    assert read == expected


def test_what_git_refuses_does_no_harm():
    """The lines around it are read."""
    assert [setting.value for setting in parse('[a]\n= 3\nx = v\n[bad "\ny = w\n[c]\nz = "open\n')] == [
        "v",
        "w",
        "open",
    ]


def test_included_files_are_read_at_any_depth(tmp_path):
    """Also under a condition, in a circle, and where one is missing."""
    texts = {
        "a": "[include]\npath = sub/b\n",
        "sub/b": '[includeIf "gitdir:/nowhere/"]\npath = ../c\n',
        "c": "[include]\npath = a\npath = missing\n[x]\ny = z\n",
    }
    (tmp_path / "sub").mkdir()
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    read = read_settings([f"{tmp_path}/a"])
    assert ("x.y", "z") in [(setting.key, setting.value) for _, setting in read.settings]
    files = {os.path.relpath(file, tmp_path) for file in read.files}
    assert files >= {"a", "sub/b", "c", "missing"}


def test_a_changed_file_is_read_again(tmp_path):
    file = tmp_path / "config"
    for value in ("one", "two"):
        file.write_text(f"[a]\nx = {value}\n")
        assert [setting.value for _, setting in read_settings([str(file)]).settings] == [value]
