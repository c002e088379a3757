"""One question for all file tools: whether a program of the user obeys a file."""

from __future__ import annotations

import os

import pytest

from lyra.sandbox.protection import obeyed
from lyra.sandbox.protection.obeyed import find_obeyed_part


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A workspace that is a repository, outside the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("home", "w/.git/objects", "w/.git/refs", "w/tools", "w/conf", "second"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "w/.git/HEAD").write_text("ref: refs/heads/main\n")
    return tmp_path / "w"


def refused(root, *paths: str, exact: bool = True) -> list[bool]:
    return [find_obeyed_part(f"{root}/{path}", (str(root),), exact=exact) is not None for path in paths]


@pytest.mark.parametrize("exact", [True, False])
def test_what_settings_name(root, exact):
    """Further settings, hooks and programs; not the files that a command line only reads."""
    (root / ".git/config").write_text(
        "[include]\npath = ../conf/shared\n[core]\nhooksPath = hooks\nfsmonitor = tools/watch -q\n"
        "[alias]\nrelease = !git add package.json docs/news.md && npm test src/\n"
    )
    assert refused(root, "conf/shared", "hooks/pre-commit", "tools/watch", exact=exact) == [True] * 3
    free = ("conf/other", "tools/watch2", "tools/x", "package.json", "docs/news.md", "src/a", "main.py")
    assert refused(root, *free, exact=exact) == [False] * 7


def test_a_decision_sees_new_settings_at_once(root):
    assert refused(root, "tools/watch", exact=False) == [False]
    (root / ".git/config").write_text("[core]\nfsmonitor = tools/watch\n")
    assert refused(root, "tools/watch", exact=False) == [True]


def test_targets_of_links(root):
    """A file, a folder, a target that is missing, a name in a linked folder, a link in a protected folder."""
    (root / ".envrc").symlink_to("tools/env.sh")
    (root / ".idea").symlink_to("conf")
    (root / ".cargo").symlink_to("tools")
    (root / ".vscode").mkdir()
    (root / ".vscode/tasks.json").symlink_to("../later/tasks.json")
    assert refused(root, "tools/env.sh", "conf/x", "tools/config.toml", "later/tasks.json") == [True] * 4
    assert refused(root, "tools/x", "config.toml", "later/x") == [False] * 3


def test_a_link_to_the_whole_workspace_does_not_close_it(root):
    (root / ".idea").symlink_to(".")
    assert refused(root, "main.py") == [False]


def test_a_second_root(root, tmp_path):
    """Settings and links of one may lead into the other."""
    (root / ".git/config").write_text("[include]\npath = ../../second/shared\n")
    (root / ".envrc").symlink_to("../second/env")
    roots = (str(root), str(tmp_path / "second"))
    assert [bool(find_obeyed_part(f"{roots[1]}/{name}", roots)) for name in ("shared", "env", "x")] == [
        True,
        True,
        False,
    ]


def test_a_new_link_is_seen_in_a_folder_that_was_listed(root):
    """By the time of its change, also deep down."""
    deep = root / "a/b/c"
    deep.mkdir(parents=True)
    os.utime(deep, (1, 1))
    assert refused(root, "tools/env.sh") == [False]
    assert str(deep) in obeyed._listed
    (deep / ".envrc").symlink_to("../../../tools/env.sh")
    assert refused(root, "tools/env.sh") == [True]
