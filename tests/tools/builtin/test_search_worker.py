"""The search's own process: links that appear while it looks lead nowhere, and a shortcut changes no answer."""

from __future__ import annotations

import asyncio
import json
import os
import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.tools.builtin import Workspace
from lyra.tools.builtin.search import search_tools
from lyra.tools.builtin.search_worker import by_hand, confirm, must_hold, open_folder, walk
from tests.cases import cases


def job(root, pattern: str, **more):
    given = {"multiline": False, "ignore_case": False, "before": 0, "after": 0}
    return {"root": str(root), "pattern": pattern, **given, **more}


def test_a_folder_that_became_a_link_is_not_entered(tmp_path):
    """A folder is replaced by a link between listing and opening it; nothing outside is read."""
    (tmp_path / "work/a").mkdir(parents=True)
    (tmp_path / "work/b").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    seen = []
    for fd, path, names in walk(str(tmp_path / "work")):
        if not path:  # a and b are waiting now
            for name in ("a", "b"):
                os.rmdir(tmp_path / "work" / name)
                os.symlink(tmp_path / "outside", tmp_path / "work" / name)
        seen += [path + name for name in names]
        assert fd >= 0
    assert seen == []


def test_a_link_on_the_way_is_refused(tmp_path):
    """Also one further up: the folder must have the very path it was asked for by."""
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.close(open_folder(str(tmp_path / "real/deep")))
    os.close(open_folder("/"))
    for path in ("link", "link/deep", "link/"):
        with pytest.raises(OSError):  # noqa: PT011 - which of several depends on where the link is
            open_folder(f"{tmp_path}/{path}")


@settings(max_examples=cases(300), deadline=None)
@given(pattern=st.text("ab.*+?{}1,()|[]^$\\dw -", min_size=1, max_size=8), text=st.text("ab1 -\n{}dw.", max_size=12))
def test_what_must_be_held_is_held(pattern, text):
    """Wherever a pattern matches, the bytes that let a file be passed over without it are there."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of sets in sets, which may mean more one day
            matched = re.compile(pattern, re.MULTILINE).search(text)
    except re.error:
        return
    if matched is not None:
        assert must_hold(job(".", pattern)) in text.encode()


def test_large_and_wide_files_are_searched(tmp_path):
    (tmp_path / "big").write_text("x" * 200_000 + "\nneedle\n")
    (tmp_path / "wide").write_bytes("\ufeffneedle\n".encode("utf-16-le"))
    (tmp_path / "huge").write_bytes(b"needle\n" * 2_000_000)
    wanted = job(tmp_path, "needle")
    assert sorted({row[0] for row in by_hand(re.compile("needle"), wanted)}) == ["big", "wide"]


def test_rows_behind_many_hidden_ones_are_found(tmp_path):
    """However many rows are hidden, those that are not are shown, and counted once."""
    for number in range(400):
        (tmp_path / f"a{number:03}").write_text("one\n")
    (tmp_path / "z").write_text("one\n")
    workspace = Workspace(str(tmp_path), hidden=lambda path: "/a" in path.removeprefix(str(tmp_path)))
    for tool in search_tools(workspace, ripgrep=False):
        assert tool.run is not None
        arguments = {"pattern": "*"} if tool.name == "Glob" else {"pattern": "one", "head_limit": 3}
        assert asyncio.run(tool.run(**arguments)) == "z"


def test_lines_from_elsewhere_are_not_shown(tmp_path):
    """What ripgrep found is looked up again, without links: a swapped folder shows nothing of what it led to."""
    (tmp_path / "work/src").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a").write_text("secret\n")
    (tmp_path / "work/src/a").write_text("plain\n")
    (tmp_path / "work/link").symlink_to(tmp_path / "outside")
    rows = [
        ("src/a", 1, "plain", True),
        ("src/a", 1, "secret", True),
        ("link/a", 1, "secret", True),
        ("gone", 1, "x", True),
    ]
    for mode in ("content", "count", "files_with_matches"):
        assert confirm(rows, job(tmp_path / "work", ".", mode=mode), 10) == [("src/a", 1, "plain", True)]


def test_no_mode_tells_of_a_file_elsewhere(tmp_path, monkeypatch):
    """A ripgrep that was led outside by a swapped folder: nothing it says of there is shown, counted or named."""
    for name, text in (("work/t/a", "plain\n"), ("work/t/b", "needle\n"), ("bin/rg", "")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    lines = [{"type": "begin", "data": {}}]
    for name, text in (("./t/a", "needle of outside\n"), ("./t/b", "needle\n")):
        lines.append({"type": "match", "data": {"path": {"text": name}, "lines": {"text": text}, "line_number": 1}})
    (tmp_path / "bin/said").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "bin/rg").write_text(f"#!/bin/sh\nexec /bin/cat {tmp_path}/bin/said\n")
    (tmp_path / "bin/rg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    _, grep = search_tools(Workspace(str(tmp_path / "work")))
    assert grep.run is not None
    for mode, shown in (("content", "t/b:1:needle"), ("count", "t/b:1"), ("files_with_matches", "t/b")):
        assert asyncio.run(grep.run(pattern="needle", output_mode=mode)) == shown
