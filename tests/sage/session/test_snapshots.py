"""Undo, redo and checkpoints of files: what comes back, what is refused, and what is never touched."""

from __future__ import annotations

import itertools
import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lyra.core.ids import Entropy
from lyra.errors import ConfigError, Conflict, Corrupt, StoreError
from lyra.sage.session.snapshots import ScanBounds, Snapshots
from tests.sage.session.trees import tree


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def snapshots(tmp_path, work):
    with Snapshots(tmp_path / "session", [str(work)]) as opened:
        yield opened


def edit(snapshots: Snapshots, path: Path, text: str) -> list[Any]:
    """As a tool does it that names its file."""
    token = snapshots.before(str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return snapshots.after(token)


def command(snapshots: Snapshots, act) -> list[Any]:
    """As a command does it, which may change any file."""
    token = snapshots.before_command()
    act()
    return snapshots.after(token)


def objects_bytes(snapshots: Snapshots) -> int:
    return sum(path.stat().st_size for path in (snapshots.folder / "objects").iterdir())


def test_the_changes_of_a_turn(snapshots, work):
    """Created, modified, deleted: with the bytes before and after and a diff; folders are not shown."""
    (work / "a.txt").write_text("one\ntwo\n")
    (work / "gone").write_text("x")
    snapshots.begin_turn(1)

    def act():
        (work / "a.txt").write_text("one\n2\n")
        (work / "gone").unlink()
        (work / "new").mkdir()
        (work / "new" / "b").write_text("b\n")

    assert len(command(snapshots, act)) == 3
    changes = {change.name: change for change in snapshots.turn_changes(1)}
    assert {name: change.kind for name, change in changes.items()} == {
        "a.txt": "modified",
        "gone": "deleted",
        "new/b": "created",
    }
    assert (changes["a.txt"].before, changes["a.txt"].after) == (b"one\ntwo\n", b"one\n2\n")
    assert (changes["gone"].before, changes["gone"].after) == (b"x", None)
    assert changes["new/b"].path == str(work / "new" / "b")
    assert changes["a.txt"].diff() == "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    assert changes["new/b"].diff().startswith("--- /dev/null\n+++ b/new/b\n")
    assert "No newline" in changes["gone"].diff()
    snapshots.begin_turn(2)
    edit(snapshots, work / "a.txt", "three")
    assert [change.before for change in snapshots.turn_changes(2)] == [b"one\n2\n"]
    assert [change.before for change in snapshots.turn_changes() if change.name == "a.txt"] == [b"one\ntwo\n"]
    assert snapshots.turn_changes(3) == []


def test_changes_that_are_taken_back_are_none(snapshots, work):
    (work / "a").write_text("1")
    snapshots.begin_turn(1)
    edit(snapshots, work / "a", "2")
    edit(snapshots, work / "a", "1")
    edit(snapshots, work / "new", "x")
    command(snapshots, (work / "new").unlink)
    assert snapshots.turn_changes(1) == []
    assert snapshots.restore(1).paths == ()


def test_a_diff_is_safe_to_print(snapshots, work):
    """Escape sequences in names and content are codes; binary, large and mode changes are said in words."""
    snapshots.begin_turn(1)
    (change,) = edit(snapshots, work / "esc\x1b[2J", "a\x1b]0;x\x07\tb\n")
    assert "\x1b" not in change.diff()
    assert "+a⟨U+001B⟩]0;x⟨U+0007⟩\tb" in change.diff()
    (change,) = edit(snapshots, work / "bin", "\0\1")
    assert change.diff() == "bin: binary files differ\n"
    (change,) = edit(snapshots, work / "large", "x\n" * 600_000)
    assert "too large" in change.diff()
    (change,) = edit(snapshots, work / "many", "\n" * 30_000)
    assert "too many lines" in change.diff()
    (change,) = edit(snapshots, work / "empty", "")
    assert change.diff() == "empty: created, empty\n"
    (change,) = command(snapshots, lambda: (work / "bin").chmod(0o700))
    assert change.diff() == "bin: mode 644 became 700\n"
    (change,) = command(snapshots, lambda: ((work / "bin").unlink(), (work / "bin").symlink_to("x")))
    assert change.diff().startswith("bin: a file became a link\n")
    assert change.after == b"x"


def test_undo_and_redo(snapshots, work):
    """Files, modes, created folders; the checkpoint that comes back takes the undo back, and so on."""
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o750)
    before = tree(work)
    snapshots.begin_turn(1)
    edit(snapshots, work / "run.sh", "changed")
    edit(snapshots, work / "x" / "y" / "z", "deep")
    command(snapshots, lambda: (work / "run.sh").chmod(0o600))
    after = tree(work)
    undone = snapshots.restore(1)
    assert tree(work) == before
    assert undone.redo == "undo-1"
    assert str(work / "run.sh") in undone.paths
    assert str(work / "x") in undone.paths
    redone = snapshots.restore_checkpoint(undone.redo)
    assert tree(work) == after
    snapshots.restore_checkpoint(redone.redo)
    assert tree(work) == before
    assert [mark.automatic for mark in snapshots.checkpoints()] == [True, True, True]


def test_an_undone_turn_is_no_change_of_the_session(snapshots, work):
    snapshots.begin_turn(1)
    edit(snapshots, work / "a", "1")
    snapshots.begin_turn(2)
    edit(snapshots, work / "b", "2")
    snapshots.restore(2)
    assert [change.name for change in snapshots.turn_changes()] == ["a"]
    snapshots.begin_turn(2)
    edit(snapshots, work / "c", "3")
    assert [change.name for change in snapshots.turn_changes(2)] == ["c"]
    assert [change.name for change in snapshots.turn_changes()] == ["a", "c"]


def test_a_turn_without_a_beginning(snapshots, work):
    """The turns in between, or none at all: the first later one counts; there is nothing to undo behind the last."""
    snapshots.begin_turn(1)
    edit(snapshots, work / "a", "1")
    snapshots.begin_turn(4)
    edit(snapshots, work / "a", "4")
    assert snapshots.restore(9).paths == ()
    snapshots.restore(3)
    assert (work / "a").read_text() == "1"


# ------------------------------------------------------------ other hands
def test_what_another_hand_changed_is_not_overwritten(snapshots, work):
    """Conflict with the diff of just that change; nothing is touched. With force it is overwritten, and can be had
    back."""
    (work / "a").write_text("1\n")
    (work / "b").write_text("1\n")
    snapshots.begin_turn(1)
    edit(snapshots, work / "a", "2\n")
    edit(snapshots, work / "b", "2\n")
    (work / "a").write_text("2\nmine\n")
    now = tree(work)
    with pytest.raises(Conflict) as refused:
        snapshots.restore(1)
    assert refused.value.fields["diff"] == "--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n 2\n+mine\n"
    assert refused.value.fields["paths"] == [str(work / "a")]
    assert tree(work) == now
    forced = snapshots.restore(1, force=True)
    assert (work / "a").read_text() == (work / "b").read_text() == "1\n"
    snapshots.restore_checkpoint(forced.redo)
    assert tree(work) == now


def test_a_change_in_between_counts(snapshots, work):
    """The agent, then the user, then the agent again: going behind the first asks, going behind the last does not."""
    snapshots.begin_turn(1)
    edit(snapshots, work / "a", "agent\n")
    (work / "a").write_text("user\n")
    snapshots.begin_turn(2)
    edit(snapshots, work / "a", "agent again\n")
    with pytest.raises(Conflict) as refused:
        snapshots.restore(1)
    assert "+user" in refused.value.fields["diff"]
    snapshots.restore(2)
    assert (work / "a").read_text() == "user\n"
    snapshots.restore(1, force=True)
    assert not (work / "a").exists()


def test_a_change_before_the_turn_is_kept(snapshots, work):
    """What the user changed before the agent did is what comes back, also where no scan has seen it before."""
    (work / "a").write_text("old")
    snapshots.begin_turn(1)
    command(snapshots, lambda: None)
    (work / "a").write_text("by the user")
    snapshots.begin_turn(2)
    edit(snapshots, work / "a", "by the agent")
    snapshots.restore(1)
    assert (work / "a").read_text() == "by the user"


def test_a_forced_undo_is_not_asked_about_again(snapshots, work):
    """The change that was overwritten is gone: an earlier turn can be undone without force."""
    snapshots.begin_turn(1)
    edit(snapshots, work / "a", "1")
    snapshots.begin_turn(2)
    edit(snapshots, work / "a", "2")
    (work / "a").write_text("user")
    snapshots.restore(2, force=True)
    snapshots.restore(1)
    assert not (work / "a").exists()


def test_a_change_that_the_user_took_back_is_no_conflict(snapshots, work):
    snapshots.begin_turn(1)
    edit(snapshots, work / "a", "1")
    (work / "a").write_text("user")
    snapshots.scan()
    (work / "a").write_text("1")
    snapshots.restore(1)
    assert not (work / "a").exists()


def test_files_of_others_stay(snapshots, work):
    """A file of the user in a folder of the agent keeps the folder; it is said."""
    snapshots.begin_turn(1)
    edit(snapshots, work / "new" / "a", "1")
    (work / "new" / "mine").write_text("mine")
    result = snapshots.restore(1)
    assert (work / "new" / "mine").read_text() == "mine"
    assert not (work / "new" / "a").exists()
    assert len(result.problems) == 1
    assert "not empty" in result.problems[0]


def test_keys_in_a_conflict_are_redacted(snapshots, work):
    snapshots.begin_turn(1)
    edit(snapshots, work / "a", "1")
    (work / "a").write_text("sk-" + "a1b2c3d4" * 4)
    with pytest.raises(Conflict) as refused:
        snapshots.restore(1)
    assert "a1b2c3d4" not in refused.value.fields["diff"]


# ------------------------------------------------------------ checkpoints
def test_checkpoints(tmp_path, snapshots, work):
    """By name, also after the process has ended; the same name moves; what the user changed in other files stays."""
    (work / "a").write_text("1")
    snapshots.begin_turn(1)
    snapshots.checkpoint("start")
    edit(snapshots, work / "a", "2")
    snapshots.begin_turn(2)
    snapshots.checkpoint("middle")
    edit(snapshots, work / "a", "3")
    (work / "mine").write_text("mine")
    assert [(mark.name, mark.turn, mark.automatic) for mark in snapshots.checkpoints()] == [
        ("start", 1, False),
        ("middle", 2, False),
    ]
    snapshots.close()
    with Snapshots(tmp_path / "session", [str(work)]) as again:
        again.restore_checkpoint("middle")
        assert (work / "a").read_text() == "2"
        again.restore_checkpoint("start")
        assert (work / "a").read_text() == "1"
        assert (work / "mine").read_text() == "mine"
        again.checkpoint("middle")
        assert [mark.name for mark in again.checkpoints()][-1] == "middle"
        assert again.restore_checkpoint("middle").paths == ()
        with pytest.raises(StoreError) as unknown:
            again.restore_checkpoint("midle")
        assert unknown.value.hint == "did you mean 'middle'?"


def test_a_checkpoint_knows_the_users_state(snapshots, work):
    """A file that the user and then the agent changed since: refused, and with force it is as at the checkpoint."""
    (work / "a").write_text("at the checkpoint")
    snapshots.begin_turn(1)
    snapshots.checkpoint("c")
    (work / "a").write_text("user")
    edit(snapshots, work / "a", "agent")
    with pytest.raises(Conflict):
        snapshots.restore_checkpoint("c")
    snapshots.restore_checkpoint("c", force=True)
    assert (work / "a").read_text() == "at the checkpoint"


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb", "\x1b", "undo-1"])
def test_names_of_checkpoints(snapshots, name):
    with pytest.raises(ConfigError):
        snapshots.checkpoint(name)


# ------------------------------------------------------------ kinds of files
def test_a_file_becomes_a_folder_and_back(snapshots, work):
    """And a folder with content a file, and both a link."""
    (work / "file").write_text("f")
    (work / "folder" / "in").mkdir(parents=True)
    (work / "folder" / "in" / "x").write_text("x")
    (work / "link").symlink_to("file")
    before = tree(work)
    snapshots.begin_turn(1)

    def act():
        os.system(f"cd '{work}' && rm -r file folder link && mkdir -p file/a link && ln -s /etc link/x")
        os.system(f"cd '{work}' && echo 1 > file/a/b && echo 2 > folder")

    command(snapshots, act)
    between = tree(work)
    snapshots.begin_turn(2)
    command(
        snapshots,
        lambda: os.system(
            f"cd '{work}' && rm -r file folder link && ln -s folder file && ln -s . folder && echo 3 > link"
        ),
    )
    snapshots.restore(2)
    assert tree(work) == between
    snapshots.restore(1)
    assert tree(work) == before


def test_names_of_any_bytes(tmp_path, snapshots, work):
    """Line ends, escape sequences, other encodings; also after the process has ended."""
    names = ["a\nb", "\x1b[0m", "ünï", os.fsdecode(b"\xff\xfe"), "😀", " ", "-rf", "'\"`$"]
    for name in names:
        (work / name).write_text(name[:1].encode("utf-8", "replace").decode())
    before = tree(work)
    snapshots.begin_turn(1)
    command(snapshots, lambda: [(work / name).write_text("changed") for name in names])
    assert {change.name for change in snapshots.turn_changes(1)} == set(names)
    snapshots.close()
    with Snapshots(tmp_path / "session", [str(work)]) as again:
        assert len(again.turn_changes(1)) == len(names)
        again.restore(1)
    assert tree(work) == before


def test_modes_of_folders(snapshots, work):
    """A folder that the agent closed is opened again, and what it held comes back; a closed folder stays closed."""
    (work / "closed").mkdir()
    (work / "closed" / "a").write_text("1")
    (work / "closed").chmod(0o500)
    before = tree(work)
    snapshots.begin_turn(1)

    def act():
        (work / "closed").chmod(0o700)
        (work / "closed" / "a").write_text("2")
        (work / "closed" / "b").write_text("2")
        (work / "closed").chmod(0o000)

    command(snapshots, act)
    snapshots.restore(1)
    assert tree(work) == before


def test_special_files_are_left_alone(snapshots, work):
    """A pipe is not opened, which would hang; one that the agent made goes away."""
    os.mkfifo(work / "pipe")
    snapshots.begin_turn(1)
    command(snapshots, lambda: os.mkfifo(work / "new"))
    snapshots.restore(1)
    assert not (work / "new").exists()
    assert stat.S_ISFIFO((work / "pipe").stat().st_mode)
    snapshots.begin_turn(2)
    command(snapshots, (work / "pipe").unlink)
    assert "stays as it is" in snapshots.restore(2).problems[0]


def test_a_hard_linked_file_does_not_change_its_kept_content(snapshots, work):
    """Kept contents are copies: writing in place through another name does not reach them."""
    (work / "a").write_text("x" * 300_000)
    os.link(work / "a", work / "b")
    before = tree(work)
    snapshots.begin_turn(1)

    def act():
        with open(work / "a", "r+") as file:
            file.write("overwritten")

    command(snapshots, act)
    snapshots.restore(1)
    assert tree(work) == before


def test_unreadable_files(snapshots, work, monkeypatch):
    """A file that may not be read is said, and stays; the others are restored."""
    real = os.open

    def refuse(path, *arguments, **options):
        if path == "secret" and options.get("dir_fd") is not None:
            raise PermissionError(13, "Permission denied")  # the tests may run as root, who may read everything
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    (work / "secret").write_text("s")
    (work / "secret").chmod(0)
    (work / "plain").write_text("1")
    snapshots.begin_turn(1)
    command(snapshots, lambda: (work / "plain").write_text("2"))
    assert "may not be read" in snapshots.notes()[0]
    snapshots.begin_turn(2)
    command(snapshots, (work / "secret").unlink)
    assert "stays as it is" in snapshots.restore(1).problems[0]
    assert (work / "plain").read_text() == "1"


# ------------------------------------------------------------ what is never touched
def test_git_is_never_touched(snapshots, work):
    """Neither the folder nor the file of a worktree nor a bare repository, in any depth."""
    for folder in (".git", "sub/.git"):
        (work / folder).mkdir(parents=True)
        (work / folder / "config").write_text("1")
    (work / "tree").mkdir()
    (work / "tree" / ".git").write_text("gitdir: x")
    for name in ("objects", "refs"):
        (work / "bare" / name).mkdir(parents=True)
    (work / "bare" / "HEAD").write_text("1")
    snapshots.begin_turn(1)

    def act():
        for path in (".git/config", "sub/.git/config", "tree/.git", "bare/HEAD"):
            (work / path).write_text("2")
        (work / ".git" / "new").write_text("2")

    command(snapshots, act)
    edit(snapshots, work / ".git" / "config", "3")
    assert snapshots.turn_changes(1) == []
    snapshots.restore(1)
    assert (work / ".git" / "config").read_text() == "3"
    assert (work / "tree" / ".git").read_text() == "2"


def test_content_that_tools_make_again_is_skipped(snapshots, work):
    """`node_modules`, virtual environments and marked caches; a file in them that a tool names is kept all the same,
    and a mark that is set later hides no changes."""
    (work / "node_modules").mkdir()
    (work / "node_modules" / "a.js").write_text("1")
    (work / "env").mkdir()
    (work / "env" / "pyvenv.cfg").write_text("")
    (work / "env" / "a").write_text("1")
    (work / "src").mkdir()
    (work / "src" / "a.py").write_text("1")
    snapshots.begin_turn(1)

    def act():
        for path in ("node_modules/a.js", "env/a", "src/a.py"):
            (work / path).write_text("2")
        (work / "src" / "CACHEDIR.TAG").write_text("")

    command(snapshots, act)
    edit(snapshots, work / "node_modules" / "a.js", "3")
    assert {change.name for change in snapshots.turn_changes(1)} >= {"src/a.py", "node_modules/a.js"}
    snapshots.restore(1)
    assert (work / "src" / "a.py").read_text() == "1"
    assert (work / "node_modules" / "a.js").read_text() == "2"
    assert (work / "env" / "a").read_text() == "2"


def test_a_folder_that_is_listed_later_was_not_made_by_the_agent(snapshots, work):
    """Files that come into view because a mark was removed are the user's: undo does not delete them."""
    (work / "cache").mkdir()
    (work / "cache" / "CACHEDIR.TAG").write_text("")
    (work / "cache" / "mine").write_text("mine")
    snapshots.begin_turn(1)
    command(snapshots, (work / "cache" / "CACHEDIR.TAG").unlink)
    command(snapshots, lambda: None)
    snapshots.restore(1)
    assert (work / "cache" / "mine").read_text() == "mine"


def test_compiled_modules_do_not_keep_a_new_folder(snapshots, work):
    snapshots.begin_turn(1)

    def act():
        (work / "package" / "__pycache__").mkdir(parents=True)
        (work / "package" / "m.py").write_text("")
        (work / "package" / "__pycache__" / "m.cpython-311.pyc").write_bytes(b"")

    command(snapshots, act)
    assert snapshots.restore(1).problems == ()
    assert tree(work) == {}


def test_lyras_own_folders_are_not_copied(tmp_path, monkeypatch):
    """In a home folder as workspace: neither settings, nor sessions, nor keys."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in (".config/lyra/keys", ".local/share/lyra/sessions/x/session.db", ".ssh/id_ed25519", "project/a"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"content of {name}")
    with Snapshots(home / ".local/share/lyra/sessions/y", [str(home)]) as snapshots:
        snapshots.scan()
    (pack,) = (home / ".local/share/lyra/sessions/y/files/objects").iterdir()
    assert pack.read_bytes().count(b"content of ") == 1
    assert b"content of project/a" in pack.read_bytes()


def test_files_are_private(tmp_path, snapshots, work):
    """Kept contents may be secrets of the project: files 0600, folders 0700."""
    (work / "a").write_text("x" * 200_000)
    (work / "b").write_text("x")
    snapshots.begin_turn(1)
    command(snapshots, lambda: None)
    for path in (tmp_path / "session").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


# ------------------------------------------------------------ links that lead out
def test_a_folder_replaced_by_a_link_out_of_the_workspace(tmp_path, snapshots, work):
    """Undo puts the folder back and writes nothing through the link."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("outside")
    (work / "folder").mkdir()
    (work / "folder" / "a").write_text("inside")
    before = tree(work)
    snapshots.begin_turn(1)

    def act():
        os.system(f"cd '{work}' && rm -r folder && ln -s '{outside}' folder")

    command(snapshots, act)
    snapshots.restore(1)
    assert tree(work) == before
    assert tree(outside) == {"a": ("file", 0o644, b"outside")}


def test_a_link_that_another_hand_puts_in_the_way(tmp_path, snapshots, work):
    """The folder that holds the file becomes a link out between the change and the undo: refused, also with force."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("outside")
    (work / "folder").mkdir()
    (work / "folder" / "a").write_text("1")
    snapshots.begin_turn(1)
    edit(snapshots, work / "folder" / "a", "2")
    os.rename(work / "folder", work / "moved")
    (work / "folder").symlink_to(outside)
    with pytest.raises(Conflict):
        snapshots.restore(1)
    result = snapshots.restore(1, force=True)
    assert result.problems
    assert (outside / "a").read_text() == "outside"
    assert os.path.islink(work / "folder")
    assert (work / "moved" / "a").read_text() == "2"


def test_paths_outside_of_the_workspace_are_ignored(tmp_path, snapshots, work):
    """Absolute, by `..` or through a link: neither kept nor restored."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("1")
    (work / "link").symlink_to(outside)
    snapshots.begin_turn(1)
    for path in (outside / "a", work / ".." / "outside" / "a", work / "link" / "a"):
        edit(snapshots, path, "2")
    assert snapshots.turn_changes(1) == []
    assert snapshots.restore(1).paths == ()
    assert (outside / "a").read_text() == "2"


def test_a_file_that_is_reached_by_a_link_inside(snapshots, work):
    """The file itself is kept; the link stays a link."""
    (work / "real").write_text("1")
    (work / "link").symlink_to("real")
    snapshots.begin_turn(1)
    edit(snapshots, work / "link", "2")
    snapshots.restore(1)
    assert (work / "real").read_text() == "1"
    assert os.path.islink(work / "link")


def test_a_link_swapped_in_during_the_restore_leads_nowhere(tmp_path, snapshots, work):
    """Another process keeps replacing the folder by a link out while files are restored: nothing outside changes."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (work / "folder").mkdir()
    for number in range(20):
        (work / "folder" / str(number)).write_text("1")
    snapshots.begin_turn(1)
    command(snapshots, lambda: [(work / "folder" / str(number)).write_text("2") for number in range(20)])
    stop = threading.Event()

    def swap():
        for number in itertools.count():
            if stop.is_set():
                return
            with suppress(FileNotFoundError):
                os.rename(work / "folder", work / f"held-{number}")
            with suppress(FileExistsError):  # the restore has made the folder again
                (work / "folder").symlink_to(outside)
            with suppress(OSError):
                (work / "folder").unlink()

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(5):
            snapshots.restore(1, force=True)
    finally:
        stop.set()
        swapping.join()
    assert tree(outside) == {}


# ------------------------------------------------------------ bounds
def test_large_files_are_said(tmp_path, work):
    """A scan does not keep them; the change is noticed, and undo says that the file stays."""
    (work / "large").write_bytes(b"x" * 2_000)
    (work / "small").write_text("1")
    with Snapshots(tmp_path / "session", [str(work)], bounds=ScanBounds(file_bytes_max=1_000)) as snapshots:
        snapshots.begin_turn(1)
        command(snapshots, lambda: ((work / "large").write_bytes(b"y" * 2_000), (work / "small").write_text("2")))
        assert {change.name for change in snapshots.turn_changes(1)} == {"large", "small"}
        assert "not kept" in next(change.diff() for change in snapshots.turn_changes(1) if change.name == "large")
        assert "1 files are too large" in snapshots.notes()[0]
        result = snapshots.restore(1)
        assert (work / "small").read_text() == "1"
        assert "its content was not kept" in result.problems[0]


def test_a_large_file_that_a_tool_names_is_kept(tmp_path, work):
    (work / "large").write_bytes(b"x" * 2_000)
    with Snapshots(tmp_path / "session", [str(work)], bounds=ScanBounds(file_bytes_max=1_000)) as snapshots:
        snapshots.begin_turn(1)
        edit(snapshots, work / "large", "small")
        assert snapshots.restore(1).problems == ()
        assert (work / "large").read_bytes() == b"x" * 2_000


def test_the_bytes_of_all_files_are_bounded(tmp_path, work):
    for number in range(10):
        (work / str(number)).write_bytes(bytes([number]) * 1_000)
    with Snapshots(tmp_path / "session", [str(work)], bounds=ScanBounds(bytes_max=5_000)) as snapshots:
        assert snapshots.scan().unkept == 5


def test_too_many_files(tmp_path, work):
    """Shallow folders first, each whole or not at all; a file that comes into view later is not taken for new."""
    for folder in ("a", "b", "c"):
        (work / folder / "deep").mkdir(parents=True)
        for number in range(10):
            (work / folder / "deep" / str(number)).write_text("user")
    with Snapshots(tmp_path / "session", [str(work)], bounds=ScanBounds(files_max=20)) as snapshots:
        snapshots.begin_turn(1)
        command(snapshots, lambda: None)
        assert snapshots.scan().is_bounded
        assert "more than 20 files" in snapshots.notes()[0]
        command(snapshots, lambda: [(work / "a" / "deep" / str(number)).unlink() for number in range(10)])
        command(snapshots, lambda: (work / "new").write_text("agent"))
        snapshots.restore(1)
    assert len(list((work / "b" / "deep").iterdir())) == 10
    assert len(list((work / "c" / "deep").iterdir())) == 10
    assert len(list((work / "a" / "deep").iterdir())) == 10
    assert not (work / "new").exists()


def test_the_oldest_turns_are_dropped(tmp_path, work):
    """When the contents take too much room; what remains can be undone, and it is said what cannot."""
    entropy = Entropy(1)
    with Snapshots(tmp_path / "session", [str(work)], kept_bytes_max=10_000) as snapshots:
        trees = {}
        for turn in range(1, 21):
            trees[turn] = tree(work)
            snapshots.begin_turn(turn)
            if turn == 1:
                snapshots.checkpoint("first")
            edit(snapshots, work / "a", entropy.text(1_500))
        assert objects_bytes(snapshots) < 13_000
        (note,) = snapshots.notes()
        first = int(note.split("turn ")[1].split(":")[0])
        assert 10 < first < 18
        assert snapshots.checkpoints() == []
        with pytest.raises(StoreError, match="no longer kept"):
            snapshots.restore(first - 1)
        snapshots.close()
    with Snapshots(tmp_path / "session", [str(work)], kept_bytes_max=10_000) as snapshots:
        for turn in range(20, first - 1, -1):
            snapshots.restore(turn)
            assert tree(work) == trees[turn]
        with pytest.raises(StoreError, match="no longer kept"):
            snapshots.restore(first - 1)


def test_a_dropped_content_that_comes_again_is_kept_again(tmp_path, work):
    """Also by a process that knows it from the journal only."""
    entropy = Entropy(1)
    with Snapshots(tmp_path / "session", [str(work)], kept_bytes_max=10_000) as snapshots:
        for turn in range(1, 21):
            snapshots.begin_turn(turn)
            edit(snapshots, work / "a", "the first" if turn == 1 else entropy.text(1_500))
    with Snapshots(tmp_path / "session", [str(work)], kept_bytes_max=10_000) as snapshots:
        snapshots.begin_turn(21)
        edit(snapshots, work / "a", "the first")
        snapshots.begin_turn(22)
        edit(snapshots, work / "a", "the last")
        snapshots.restore(22)
        assert (work / "a").read_text() == "the first"


# ------------------------------------------------------------ several calls at once, and what is on disk
def test_calls_that_overlap(snapshots, work):
    """While a command runs, what an editing tool finds is the agent's; an `after` that comes twice does nothing."""
    (work / "a").write_text("0")
    snapshots.begin_turn(1)
    running = snapshots.before_command()
    (work / "a").write_text("1")
    edit(snapshots, work / "a", "2")
    snapshots.after(running)
    assert snapshots.after(running) == []
    snapshots.restore(1)
    assert (work / "a").read_text() == "0"


def test_the_end_of_a_turn_closes_what_was_cancelled(snapshots, work):
    """What another hand changes later is not put down to a call that never ended; one in the background goes on."""
    (work / "a").write_text("0")
    (work / "b").write_text("0")
    snapshots.begin_turn(1)
    snapshots.before_command()
    (work / "a").write_text("1")
    snapshots.end_turn()
    (work / "a").write_text("user")
    with pytest.raises(Conflict):
        snapshots.restore(1)
    snapshots.begin_turn(2)
    token = snapshots.before_command()
    snapshots.end_turn(still_running=[token])
    (work / "b").write_text("from the background")
    snapshots.after(token)
    snapshots.restore(2)
    assert (work / "b").read_text() == "0"


def test_a_command_that_was_cut_off(tmp_path, work):
    """Its process was killed: what it has changed belongs to its turn, not to the next, and can be undone."""
    (work / "a").write_text("0")
    killed = Snapshots(tmp_path / "session", [str(work)])
    killed.begin_turn(1)
    killed.before_command()
    killed.before(str(work / "new"))
    (work / "a").write_text("1")
    (work / "new").write_text("1")
    killed.close()
    with Snapshots(tmp_path / "session", [str(work)]) as snapshots:
        assert {change.name for change in snapshots.turn_changes(1)} == {"a", "new"}
    with Snapshots(tmp_path / "session", [str(work)]) as snapshots:
        snapshots.begin_turn(2)
        edit(snapshots, work / "a", "2")
        assert {change.name for change in snapshots.turn_changes(1)} == {"a", "new"}
        snapshots.restore(2)
        assert (work / "a").read_text() == "1"
        snapshots.restore(1)
        assert tree(work) == {"a": ("file", 0o644, b"0")}


def test_a_turn_begins_behind_the_command_that_was_cut_off(tmp_path, work):
    killed = Snapshots(tmp_path / "session", [str(work)])
    killed.begin_turn(1)
    killed.before_command()
    (work / "a").write_text("1")
    killed.close()
    with Snapshots(tmp_path / "session", [str(work)]) as snapshots:
        snapshots.begin_turn(2)
        assert [change.name for change in snapshots.turn_changes(1)] == ["a"]
        assert snapshots.turn_changes(2) == []


def test_one_process_writes(tmp_path, snapshots, work):
    """A second one is refused, and can still read the changes."""
    snapshots.begin_turn(1)
    edit(snapshots, work / "a", "1")
    snapshots.before_command()
    with Snapshots(tmp_path / "session", [str(work)]) as second:
        assert [change.after for change in second.turn_changes(1)] == [b"1"]
        with pytest.raises(Conflict, match="another process"):
            second.begin_turn(2)


def test_a_damaged_content_is_never_put_into_the_workspace(snapshots, work):
    """The file stays as it is, and the reason is given; other files are restored."""
    (work / "a").write_text("precious")
    (work / "b").write_text("other")
    snapshots.begin_turn(1)
    edit(snapshots, work / "a", "2")
    edit(snapshots, work / "b", "2")
    (pack,) = (snapshots.folder / "objects").iterdir()
    pack.write_bytes(pack.read_bytes().replace(b"precious", b"forged!!"))
    with pytest.raises(Corrupt):
        _ = snapshots.turn_changes(1)[0].before
    result = snapshots.restore(1)
    assert "damaged" in result.problems[0]
    assert (work / "a").read_text() == "2"
    assert (work / "b").read_text() == "other"


def test_a_torn_line_is_ignored(tmp_path, snapshots, work):
    """The journal goes on behind it; lines that make no sense are passed over."""
    snapshots.begin_turn(1)
    edit(snapshots, work / "a", "1")
    snapshots.close()
    with open(snapshots.folder / "journal.jsonl", "ab") as file:
        file.write(b'["nonsense"]\n\xff\n["turn", 2, 1.0')
    with Snapshots(tmp_path / "session", [str(work)]) as again:
        again.begin_turn(2)
        edit(again, work / "a", "2")
    with Snapshots(tmp_path / "session", [str(work)]) as again:
        again.restore(2)
        assert (work / "a").read_text() == "1"
        again.restore(1)
        assert not (work / "a").exists()


def test_contents_are_kept_once(snapshots, work):
    for number in range(50):
        (work / str(number)).write_text("the same")
    snapshots.scan()
    assert objects_bytes(snapshots) < 100


def test_several_workspace_folders(tmp_path):
    """All of them are restored; one inside another counts once; a missing one does not fail."""
    folders = [tmp_path / name for name in ("one", "two", "one/inner", "missing")]
    for folder in folders[:3]:
        folder.mkdir()
    with Snapshots(tmp_path / "session", [str(folder) for folder in folders]) as snapshots:
        snapshots.begin_turn(1)
        command(snapshots, lambda: [(folder / "a").write_text("1") for folder in folders[:3]])
        assert [change.name for change in snapshots.turn_changes(1)] == ["a", "inner/a", str(tmp_path / "two" / "a")]
        snapshots.restore(1)
        assert tree(tmp_path / "one") == {"inner": ("folder", 0o755)}
        assert tree(tmp_path / "two") == {}


def test_snapshots_need_a_folder(tmp_path):
    with pytest.raises(ConfigError):
        Snapshots(tmp_path / "session", [])
