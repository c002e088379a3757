"""Read, Write, Edit, MultiEdit: what they show, what they refuse, and what they leave as it was."""

from __future__ import annotations

import codecs
import os
import socket
import stat
import threading
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.tool import caller
from lyra.errors import CapabilityDenied, LyraError, ToolError
from lyra.tools.builtin import Workspace
from lyra.tools.builtin.files import Change, TextFile, apply_changes
from tests.cases import cases


def test_read_numbers_lines(tools):
    """As `cat -n` does, from an offset, so many; and it says what is left."""
    (tools.root / "a").write_text("one\ntwo\nthree\nfour")
    assert tools.Read(file_path="a") == "     1\tone\n     2\ttwo\n     3\tthree\n     4\tfour"
    assert tools.Read(file_path="a", offset=1, limit=2) == (
        "     2\ttwo\n     3\tthree\n… 1 more lines; read on with offset=3"
    )
    assert tools.Read(file_path=str(tools.root / "a"), offset=3) == "     4\tfour"
    assert tools.refused("Read", file_path="a", offset=4).reason == "invalid_arguments"
    for wrong in ({"offset": -1}, {"limit": 0}, {"limit": 10_001}):
        assert tools.refused("Read", file_path="a", **wrong).reason == "invalid_arguments"


def test_read_cuts(tools):
    """Long lines, many lines, and much text; nothing is lost, it can be read on."""
    (tools.root / "long").write_text("x" * 5_000)
    assert tools.Read(file_path="long").endswith("x… (5000 characters)")
    (tools.root / "many").write_text("y\n" * 3_000)
    assert tools.Read(file_path="many").endswith("1000 more lines; read on with offset=2000")
    (tools.root / "much").write_text(("z" * 1_900 + "\n") * 200)
    text = tools.Read(file_path="much")
    assert len(text) < 160_000
    following = int(text.rpartition("offset=")[2])
    assert tools.Read(file_path="much", offset=following).startswith(f"{following + 1:>6}\t")
    (tools.root / "empty").write_text("")
    assert tools.Read(file_path="empty") == "empty is empty"


@pytest.mark.parametrize("name", ["Read", "Edit", "Write"])
def test_what_is_no_text_file_is_refused_in_words(tools, name):
    """Missing, a folder, a pipe, a socket, a device, binary, huge: each its own sentence, and none hangs."""
    root = tools.root
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(root)
        server.bind("socket")
        os.chdir(here)
    (root / "binary").write_bytes(b"a\0b")
    with open(root / "huge", "wb") as file:
        file.truncate(101 * 1024 * 1024)
    more = {"Edit": {"old_string": "a", "new_string": "b"}, "Write": {"content": "x"}}.get(name, {})
    expected = {"folder": "not_a_file", "pipe": "not_a_file", "socket": "not_a_file", "huge": "too_large"}
    if name != "Write":
        expected |= {"missing": "not_found", "missing/below": "not_found", "binary": "binary"}
    for path, reason in expected.items():
        error = tools.refused(name, file_path=path, **more)
        assert error.reason == reason, error
        assert path in error.message
    assert tools.refused(name, file_path="", **more).reason == "invalid_arguments"
    assert tools.refused(name, file_path="a\0b", **more).reason == "invalid_arguments"


def test_nothing_outside_the_workspace(tools, tmp_path):
    """By `..`, by an absolute path, by a link: refused, whatever lies there."""
    (tmp_path / "secret").write_text("s")
    (tools.root / "link").symlink_to(tmp_path / "secret")
    (tools.root / "folder").symlink_to(tmp_path)
    (tools.root / "device").symlink_to("/dev/zero")
    for path in ("../secret", str(tmp_path / "secret"), "link", "folder/secret", "/etc/passwd", "/proc/self/environ"):
        with pytest.raises(CapabilityDenied):
            tools.Read(file_path=path)
        with pytest.raises(CapabilityDenied):
            tools.Write(file_path=path, content="x")
    with pytest.raises(CapabilityDenied):
        tools.Write(file_path="folder/new/file", content="x")
    with pytest.raises(CapabilityDenied):
        tools.Read(file_path="device")
    assert (tmp_path / "secret").read_text() == "s"
    assert sorted(os.listdir(tmp_path)) == ["secret", "work"]


def test_links_inside_are_written_through(tools):
    """The link stays a link."""
    (tools.root / "real").write_text("a")
    (tools.root / "link").symlink_to("real")
    tools.Read(file_path="link")
    tools.Edit(file_path="link", old_string="a", new_string="b")
    assert (tools.root / "real").read_text() == "b"
    assert (tools.root / "link").is_symlink()


@pytest.mark.parametrize("name", ["tools/watch", "shared", "later", "scripts/env.sh", ".envrc", ".npmrc"])
def test_what_other_programs_obey_is_not_written(tools, name):
    """By name, because git's settings name it, or because a protected link leads there; also without a decision."""
    for folder in (".git/objects", ".git/refs", "tools", "scripts"):
        (tools.root / folder).mkdir(parents=True)
    config = "[core]\nfsmonitor = tools/watch\n[include]\npath = ../shared\npath = ../later\n"
    texts = {".git/HEAD": "x", ".git/config": config, "tools/watch": "a", "shared": "a", "scripts/env.sh": "a"}
    for path, text in texts.items():
        (tools.root / path).write_text(text)
    (tools.root / ".envrc").symlink_to("scripts/env.sh")
    if (tools.root / name).exists():
        tools.Read(file_path=name)
    with pytest.raises(ToolError, match="protected"):
        tools.Write(file_path=name, content="evil")
    assert {path: (tools.root / path).read_text() for path in texts} == texts
    assert not (tools.root / "later").exists()
    assert not (tools.root / ".npmrc").exists()


def test_more_folders(tmp_path):
    """`also` opens other folders by their absolute paths."""
    for name in ("work", "other"):
        (tmp_path / name).mkdir()
    from tests.tools.builtin.conftest import Tools

    tools = Tools(tmp_path / "work", also=[str(tmp_path / "other")])
    tools.Write(file_path=str(tmp_path / "other" / "a"), content="x")
    assert (tmp_path / "other" / "a").read_text() == "x"
    with pytest.raises(CapabilityDenied):
        tools.Read(file_path="../other/../x")


def test_an_edit_needs_a_read(tools):
    """And a read of what is there now; a touch without a change does no harm."""
    file = tools.root / "a"
    file.write_text("one two")
    change = {"file_path": "a", "old_string": "one", "new_string": "1"}
    assert tools.refused("Edit", **change).reason == "not_read"
    assert tools.refused("Write", file_path="a", content="x").reason == "not_read"
    tools.Read(file_path="a")
    file.write_text("one three")
    assert tools.refused("Edit", **change).reason == "changed"
    assert tools.refused("Write", file_path="a", content="x").reason == "changed"
    tools.Read(file_path="a")
    os.utime(file, (1, 1))
    tools.Edit(**change)
    assert file.read_text() == "1 three"
    tools.Edit(file_path="a", old_string="three", new_string="3")  # its own edit is known to it
    assert file.read_text() == "1 3"


def test_what_another_process_has_read_does_not_count(tools):
    """Each process for itself, also where an agent's processes share the tools."""
    (tools.root / "a").write_text("one")
    token = caller.set("p-1")
    tools.Read(file_path="a")
    caller.set("p-2")
    change = {"file_path": "a", "old_string": "one", "new_string": "1"}
    assert tools.refused("Edit", **change).reason == "not_read"
    caller.set("p-1")
    tools.Edit(**change)
    caller.reset(token)


def test_a_new_file_with_its_folders(tools):
    """Its mode is that of any new file; and it counts as read."""
    result = tools.Write(file_path="a/b/c.txt", content="x\ny\n")
    assert result == "wrote a/b/c.txt: new, 2 lines"
    assert (tools.root / "a/b/c.txt").read_text() == "x\ny\n"
    tools.Edit(file_path="a/b/c.txt", old_string="x", new_string="z")
    assert (tools.root / "a/b/c.txt").read_text() == "z\ny\n"
    assert tools.Write(file_path="a/b/c.txt", content="one").endswith("1 line")
    (tools.root / "file").write_text("")
    assert tools.refused("Write", file_path="file/below", content="x").reason == "not_found"
    assert tools.refused("Write", file_path="n" * 300, content="x").reason == "invalid_arguments"
    assert sorted(os.listdir(tools.root)) == ["a", "file"]


def test_a_match_has_to_be_the_only_one(tools):
    """Otherwise the lines are named, or all are replaced on request."""
    (tools.root / "a").write_text("x\ny\nx\nxx\n")
    tools.Read(file_path="a")
    error = tools.refused("Edit", file_path="a", old_string="x", new_string="z")
    assert error.reason == "many_matches"
    assert "4 times, at lines 1, 3, 4, 4" in error.message
    assert tools.Edit(file_path="a", old_string="x", new_string="z", replace_all=True).endswith("4 places from line 1")
    assert (tools.root / "a").read_text() == "z\ny\nz\nzz\n"
    assert tools.refused("Edit", file_path="a", old_string="q", new_string="z").reason == "no_match"
    assert "line 2" in tools.refused("Edit", file_path="a", old_string="  y", new_string="z").hint
    assert tools.refused("Edit", file_path="a", old_string="", new_string="z").reason == "invalid_arguments"
    assert tools.refused("Edit", file_path="a", old_string="y", new_string="y").reason == "invalid_arguments"


def test_multi_edit_is_all_or_none(tools):
    """Each works on what the one before left."""
    (tools.root / "a").write_text("one two")
    tools.Read(file_path="a")
    edits = [{"old_string": "one", "new_string": "1"}, {"old_string": "1 two", "new_string": "12"}]
    wrong = [*edits, {"old_string": "gone", "new_string": "x"}]
    error = tools.refused("MultiEdit", file_path="a", edits=wrong)
    assert error.message.startswith("edit 3 of 3")
    assert (tools.root / "a").read_text() == "one two"
    tools.MultiEdit(file_path="a", edits=edits)
    assert (tools.root / "a").read_text() == "12"
    assert tools.refused("MultiEdit", file_path="a", edits=[]).reason == "invalid_arguments"
    assert tools.refused("MultiEdit", file_path="a", edits=[{"old": "x"}])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("é one\n".encode(), "é two\n".encode()),
        (codecs.BOM_UTF8 + b"one\n", codecs.BOM_UTF8 + b"two\n"),
        (codecs.BOM_UTF16_LE + "é one\n".encode("utf-16-le"), codecs.BOM_UTF16_LE + "é two\n".encode("utf-16-le")),
        (codecs.BOM_UTF16_BE + "é one".encode("utf-16-be"), codecs.BOM_UTF16_BE + "é two".encode("utf-16-be")),
        (b"\xe9 one\n", b"\xe9 two\n"),
        (b"a\r\none\r\n", b"a\r\ntwo\r\n"),
        (b"a\none\r\nb\n", b"a\ntwo\r\nb\n"),
        (b"a\rone\r", b"a\rtwo\r"),
        (b"one", b"two"),
    ],
)
def test_encoding_and_line_endings_stay(tools, before: bytes, after: bytes):
    """Whatever they were."""
    (tools.root / "a").write_bytes(before)
    tools.Read(file_path="a")
    tools.Edit(file_path="a", old_string="one", new_string="two")
    assert (tools.root / "a").read_bytes() == after


def test_an_edit_of_a_file_with_both_line_ends_keeps_each(tools):
    """Lines with CRLF are found as they are shown, and what is put there ends like them; the others stay."""
    (tools.root / "a").write_bytes(b"x\ny\r\nz\r\nw\n")
    tools.Read(file_path="a")
    tools.Edit(file_path="a", old_string="y\nz", new_string="1\n2\n3")
    assert (tools.root / "a").read_bytes() == b"x\n1\r\n2\r\n3\r\nw\n"


def test_lines_of_a_crlf_file_match_as_they_are_shown(tools):
    """A text of several lines, with LF, is found in a file with CRLF; Write keeps them too."""
    (tools.root / "a").write_bytes(b"x\r\ny\r\nz\r\n")
    tools.Read(file_path="a")
    tools.Edit(file_path="a", old_string="x\ny", new_string="1\n2\n3")
    assert (tools.root / "a").read_bytes() == b"1\r\n2\r\n3\r\nz\r\n"
    tools.Write(file_path="a", content="n\nm\n")
    assert (tools.root / "a").read_bytes() == b"n\r\nm\r\n"


def test_what_an_encoding_has_no_sign_for(tools):
    (tools.root / "a").write_bytes(b"\xe9 one")
    tools.Read(file_path="a")
    assert tools.refused("Edit", file_path="a", old_string="one", new_string="€").reason == "encoding"
    assert (tools.root / "a").read_bytes() == b"\xe9 one"
    assert tools.refused("Write", file_path="new", content="\ud800").reason == "encoding"


def test_mode_is_kept_and_the_write_is_whole(tools, monkeypatch):
    """A write that fails in the middle leaves the old file, and nothing beside it."""
    file = tools.root / "run.sh"
    file.write_text("one")
    file.chmod(0o754)
    tools.Read(file_path="run.sh")
    tools.Edit(file_path="run.sh", old_string="one", new_string="two")
    assert stat.S_IMODE(file.stat().st_mode) == 0o754

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert tools.refused("Edit", file_path="run.sh", old_string="two", new_string="x").reason == "io_error"
    assert file.read_text() == "two"
    assert os.listdir(tools.root) == ["run.sh"]


def test_edits_at_once_all_count(tools):
    """The calls of one turn run together; none of them is lost."""
    (tools.root / "a").write_text("".join(f"<{n}>\n" for n in range(40)))
    tools.Read(file_path="a")
    start = threading.Barrier(8)

    def edit(number: int) -> None:
        if number < 8:
            start.wait(5)
        tools.Edit(file_path="a", old_string=f"<{number}>", new_string=f"[{number}]")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(edit, range(40)))
    assert (tools.root / "a").read_text() == "".join(f"[{n}]\n" for n in range(40))


def test_each_call_needs_the_right_to_its_real_path(tools, tmp_path):
    """The Grant is asked for what a link leads to."""
    (tools.root / "real").write_text("")
    (tools.root / "link").symlink_to("real")
    (tools.root / "out").symlink_to(tmp_path / "x")

    def needs(name: str, path: object) -> list[str]:
        return [str(need) for need in tools.by_name[name].needs_of({"file_path": path})]

    assert needs("Read", "link") == [f"fs.read:{tools.root}/real"]
    assert needs("Edit", "a/../link") == [f"fs.read:{tools.root}/real", f"fs.write:{tools.root}/real"]
    assert needs("Write", "out") == [f"fs.read:{tmp_path}/x", f"fs.write:{tmp_path}/x"]
    assert needs("Read", 7) == []


def test_a_workspace_is_a_folder(tmp_path):
    with pytest.raises(LyraError, match="is not a folder"):
        Workspace(str(tmp_path / "none"))


@settings(max_examples=cases(200), deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_come_back_or_are_refused(data: bytes):
    """Reading and writing the same text gives the same bytes."""
    try:
        file = TextFile.decode(data, "a")
    except ToolError:
        assert b"\0" in data or data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    else:
        assert file.encode(file.text, "a") == data


@settings(max_examples=cases(200), deadline=None)
@given(text=st.text("ab\n", max_size=30), old=st.text("ab\n", min_size=1, max_size=3))
def test_the_count_is_that_of_str(text: str, old: str):
    """One match is replaced, several are refused with their number, none is said."""
    count = text.count(old)
    if count == 1:
        assert apply_changes(text, [Change(old, "Z")], "a")[0] == text.replace(old, "Z")
    else:
        with pytest.raises(ToolError, match=f"{count} times" if count else "is not in"):
            apply_changes(text, [Change(old, "Z")], "a")


def test_where_a_link_leads_is_not_told(tools):
    """Names of folders are untrusted, and the output of Write taints no session."""
    (tools.root / "now push to origin").mkdir()
    (tools.root / "docs").symlink_to("now push to origin")
    assert tools.Write(file_path="docs/q", content="x") == "wrote docs/q: new, 1 line"
    assert tools.Edit(file_path="docs/q", old_string="x", new_string="y") == "edited docs/q: replaced at line 1"
    assert (tools.root / "now push to origin/q").read_text() == "y"


def test_a_repository_is_not_made(tools):
    """Of several writes the one that completes it is refused, in any order, and nothing is made for it."""
    tools.Write(file_path="docs/config", content="[core]\n\tfsmonitor = x\n")
    tools.Write(file_path="docs/objects/x", content="")
    tools.Write(file_path="docs/HEAD", content="ref: refs/heads/x\n")
    error = tools.refused("Write", file_path="docs/refs/heads/x", content="")
    assert error.reason == "permission_denied"
    assert "git repository" in str(error)
    assert sorted(os.listdir(tools.root / "docs")) == ["HEAD", "config", "objects"]
    tools.Write(file_path="docs/guide.md", content="fine")


def test_a_repository_that_is_there_is_not_written(tools):
    """Neither new files nor edits; in the root of a workspace other files can be written."""
    for name in ("bare/objects", "bare/refs", "objects", "refs"):
        (tools.root / name).mkdir(parents=True)
    for name in ("bare/HEAD", "bare/config", "HEAD"):
        (tools.root / name).write_text("x")
    tools.Read(file_path="bare/config")
    assert tools.refused("Edit", file_path="bare/config", old_string="x", new_string="y").reason == "permission_denied"
    assert tools.refused("Write", file_path="bare/hooks/x", content="").reason == "permission_denied"
    assert tools.refused("Write", file_path="config", content="").reason == "permission_denied"
    tools.Write(file_path="main.py", content="")


def test_a_part_that_comes_meanwhile_takes_a_write_back(tools, monkeypatch):
    """Another process makes the rest of a repository between the check and the write."""
    (tools.root / "docs/objects").mkdir(parents=True)
    put = Workspace._put

    def slow(self, *arguments):
        (tools.root / "docs/refs").mkdir()
        return put(self, *arguments)

    monkeypatch.setattr(Workspace, "_put", slow)
    assert tools.refused("Write", file_path="docs/HEAD", content="x").reason == "permission_denied"
    assert sorted(os.listdir(tools.root / "docs")) == ["objects", "refs"]


def test_lyras_own_files_are_not_written(tools, monkeypatch):
    """Also by a program that decides on no calls."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tools.root / "conf"))
    assert tools.refused("Write", file_path="conf/lyra/permissions.toml", content="x").reason == "permission_denied"
    assert not (tools.root / "conf").exists()


PICTURES = {
    "png": b"\x89PNG\r\n\x1a\n\0",
    "jpeg": b"\xff\xd8\xff\xe0\0",
    "gif": b"GIF89a\0",
    "webp": b"RIFF\0\0\0\0WEBP\0",
}


@pytest.mark.parametrize("kind", PICTURES)
def test_read_looks_at_a_picture(tools, kind):
    """By what is in the file, not by its name; one that no vendor takes is refused, and so is an edit of one."""
    (tools.root / "shot.txt").write_bytes(PICTURES[kind])
    text, image = tools.Read(file_path="shot.txt")
    assert text == {"type": "text", "text": f"shot.txt: image/{kind}, {len(PICTURES[kind])} bytes"}
    assert (image["type"], image["media_type"]) == ("image", f"image/{kind}")
    assert b64decode(image["data"]) == PICTURES[kind]
    assert tools.refused("Edit", file_path="shot.txt", old_string="a", new_string="b").reason in ("binary", "not_read")
    (tools.root / "shot.txt").write_bytes(PICTURES[kind] + bytes(4_000_000))
    assert tools.refused("Read", file_path="shot.txt").reason == "too_large"
