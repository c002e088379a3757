"""Lyra's own files are protected wherever they lie, in each tier, and for every tool that writes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
from typing import Any

import pytest

from lyra.core import own_files
from lyra.sandbox import Profile
from lyra.sandbox.protected import find
from lyra.sandbox.protection import protected_places
from lyra.sandbox.protection.obeyed import find_obeyed_part
from lyra.sandbox.protection.protected_places import (
    find_hidden_inside,
    is_closed,
    is_in_use,
    is_lyras,
    is_own,
    is_protected_at_home,
    places_in,
)
from lyra.testing import SimClock

RULES = 'deny = ["Bash(curl *)"]\n'


@pytest.fixture
def home(monkeypatch, tmp_path):
    """A home folder that is the workspace."""
    monkeypatch.setattr(own_files, "_added", {})
    monkeypatch.setattr(own_files, "_opened", {})
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    for name in ("XDG_CONFIG_HOME", *own_files.VARIABLES):
        monkeypatch.delenv(name, raising=False)
    return path


def do(sandbox, folder, script, **options):
    return asyncio.run(sandbox.run(["bash", "-c", script], Profile(str(folder), **options)))


def make(root, **files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_rules_in_the_workspace_stay(sandbox, home):
    """They are not written, removed, moved or read; work beside them goes on."""
    make(home, **{".config/lyra/permissions.toml": RULES, ".config/lyra/key": "secret", "notes/x": "y"})
    script = (
        "echo x > .config/lyra/permissions.toml; rm -rf .config; mv .config c; mkdir -p .config/lyra/tools; "
        "cat .config/lyra/key; echo fine > new; echo fine > notes/new; cat new notes/new"
    )
    result = do(sandbox, home, script)
    assert (home / ".config/lyra/permissions.toml").read_text() == RULES
    assert "secret" not in result.output.text
    assert result.output.text.count("fine") == 2
    assert result.set_aside == ()
    assert sorted(os.listdir(home / ".config/lyra")) == ["key", "permissions.toml"]


def test_a_folder_that_is_missing_is_not_made(sandbox, home):
    """Nothing is left of the attempt, and nothing of the placeholder."""
    do(sandbox, home, "mkdir -p .config/lyra/tools; echo x > .config/lyra/tools/evil.yaml; echo y > fine")
    assert [name for name in os.listdir(home) if ".held-" not in name] == ["fine"]


def test_a_folder_that_another_lyra_makes_meanwhile_stays(sandbox, home):
    """A person answers "always" while a command runs in the home folder."""
    from lyra.tools.permissions.answers import Answers
    from lyra.tools.permissions.rules import Rule

    async def main():
        job = await sandbox.start(["bash", "-c", "echo up; sleep 60"], Profile(str(home)))
        while not job.output.total_bytes:
            await asyncio.sleep(0.01)
        Answers(str(home)).add(Rule("Read", "allow"))
        job.kill()
        return await job.wait()

    result = asyncio.run(main())
    assert result.set_aside == ()
    assert len(os.listdir(home / ".config/lyra/answers")) == 2
    assert (home / ".config/lyra").stat().st_mode & 0o7777 == 0o700


def test_a_link_on_the_way_is_put_back(sandbox, home):
    """Another link would lead Lyra to other rules, wherever the first one leads."""
    outside = home.parent / "elsewhere/lyra"
    make(outside, **{"permissions.toml": RULES})
    (home / ".config").mkdir()
    (home / ".config/lyra").symlink_to(outside)
    (home / "conf").symlink_to(".config")
    do(sandbox, home, "rm -f .config/lyra; mkdir -p .config/lyra; echo x > .config/lyra/permissions.toml")
    assert os.readlink(home / ".config/lyra") == str(outside)
    assert (home / ".config/lyra/permissions.toml").read_text() == RULES


def test_the_link_of_the_whole_folder(sandbox, home):
    make(home, **{"dotfiles/config/lyra/permissions.toml": RULES})
    (home / ".config").symlink_to("dotfiles/config")
    do(sandbox, home, "rm .config; mkdir -p .config/lyra; echo x > .config/lyra/permissions.toml")
    assert os.readlink(home / ".config") == "dotfiles/config"
    do(sandbox, home, "echo x > dotfiles/config/lyra/permissions.toml; mv dotfiles d; rm -rf dotfiles")
    assert (home / "dotfiles/config/lyra/permissions.toml").read_text() == RULES


def test_the_folder_itself_as_a_workspace(sandbox, home):
    """It can be read there, and not written."""
    make(home, **{".config/lyra/tools/mine.yaml": "x"})
    folder = home / ".config/lyra"
    assert not Profile(str(folder)).writable
    assert not Profile(str(folder / "tools")).writable
    result = do(sandbox, folder, "echo x > permissions.toml; echo x > tools/mine.yaml; ls")
    assert result.output.text.rstrip().endswith("tools")
    assert (folder / "tools/mine.yaml").read_text() == "x"
    assert Profile(str(home), writable_also=(str(folder),)).writable_also == ()


@pytest.mark.parametrize("name", [".git", ".git/modules/x", ".lyra", "a/.hg/b"])
def test_a_workspace_inside_a_repository_is_read_only(sandbox, home, name):
    (home / name).mkdir(parents=True)
    assert is_closed(str(home / name))
    do(sandbox, home / name, "echo x > hooks")
    assert os.listdir(home / name) == []


def test_a_readable_folder_does_not_show_the_keys(sandbox, home):
    """Also where the home folder is not the workspace but may be read."""
    make(home, **{".config/lyra/key": "secret", "other/x": "shown", "project/y": ""})
    result = do(sandbox, home / "project", f"cat {home}/.config/lyra/key; cat {home}/other/x", readable=(str(home),))
    assert "secret" not in result.output.text
    assert "shown" in result.output.text
    assert find_hidden_inside(str(home)) == [f"{home}/.config/lyra"]


def test_another_folder_that_is_written_too(sandbox, home):
    """Lyra's folder in a second folder is protected like one in the workspace."""
    make(home, **{"conf/.config/lyra/permissions.toml": RULES, "project/x": ""})
    os.environ["HOME"] = str(home / "conf")
    script = f"echo x > {home}/conf/.config/lyra/permissions.toml; mv {home}/conf/.config {home}/conf/c"
    do(sandbox, home / "project", script, writable_also=(str(home / "conf"),))
    assert (home / "conf/.config/lyra/permissions.toml").read_text() == RULES


def test_a_store_that_is_open(sandbox, home):
    """Its file and its log, by whatever name; and its kernel goes on."""
    from lyra.store.sqlite import SqliteStore

    (home / "work").mkdir()
    store = SqliteStore(home / "work/runs.db")
    try:
        before = (home / "work/runs.db").read_bytes()
        result = do(
            sandbox, home, "cd work; echo x > runs.db; rm -f runs.db*; mv runs.db x; echo x > runs.db-journal; ls"
        )
        assert (home / "work/runs.db").read_bytes() == before
        assert (home / "work/runs.db-wal").exists()
        assert not [name for name in result.set_aside if "journal" not in name]
    finally:
        store.close()
    SqliteStore(home / "work/runs.db").close()


def test_a_log_for_a_store_that_is_not_open(sandbox, home, monkeypatch):
    """SQLite would replay it at the next opening, so it is renamed, unless a process has the store open."""
    make(home, **{"work/runs.db": "x"})
    monkeypatch.setenv("LYRA_KERNEL_STORE", str(home / "work/runs.db"))
    result = do(sandbox, home, "echo evil > work/runs.db-journal; echo evil > work/runs.db-wal")
    assert sorted(name.partition(".held-")[0] for name in result.set_aside) in (
        ["work/runs.db-journal", "work/runs.db-wal"],
        [],  # Landlock: nothing is made there at all
    )
    assert [name for name in os.listdir(home / "work") if ".held-" not in name] == ["runs.db"]


def test_a_store_that_is_made_meanwhile_stays(sandbox, home, monkeypatch):
    """By this Lyra, while a command runs: it is no work of the command."""
    from lyra.store.sqlite import SqliteStore

    (home / "work").mkdir()
    monkeypatch.setenv("LYRA_KERNEL_STORE", str(home / "work/runs.db"))

    async def main():
        job = await sandbox.start(["bash", "-c", "echo up; sleep 60"], Profile(str(home)))
        while not job.output.total_bytes:
            await asyncio.sleep(0.01)
        store = SqliteStore(home / "work/runs.db")
        job.kill()
        result = await job.wait()
        store.close()
        return result

    assert asyncio.run(main()).set_aside == ()
    SqliteStore(home / "work/runs.db").close()


def test_a_read_only_workspace_with_a_folder_that_is_written(sandbox, home):
    """What a command plants in that folder is renamed, too."""
    (home / "ws").mkdir()
    (home / "out").mkdir()
    result = do(sandbox, home / "ws", f"echo x > {home}/out/.envrc", writable=False, writable_also=(str(home / "out"),))
    assert len(result.set_aside) == 1
    assert not (home / "out/.envrc").exists()


_HOLDS = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.{0}(f, fcntl.LOCK_SH); print(1, flush=True); input()"


@pytest.mark.parametrize("lock", ["flock", "lockf"])
def test_a_file_that_another_process_has_locked_is_in_use(tmp_path, lock):
    make(tmp_path, **{"runs.db": "x", "other": ""})
    assert not is_in_use(f"{tmp_path}/runs.db-wal")
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDS.format(lock), f"{tmp_path}/runs.db"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert is_in_use(f"{tmp_path}/runs.db-wal")
        assert is_in_use(f"{tmp_path}/runs.db")
        assert not is_in_use(f"{tmp_path}/other")
        process.kill()
    assert not is_in_use(f"{tmp_path}/missing-wal")
    assert fcntl.LOCK_SH


def test_settings_of_the_home_folder(sandbox, home):
    """They are read-only where the home folder is the workspace, and new ones are renamed."""
    make(home, **{".config/app/x": "ours", ".pyenv/shims/python": "ours", "go/src/x": "y"})
    result = do(
        sandbox, home, "echo x > .config/app/x; echo x > .pyenv/shims/python; mkdir -p .cargo go/bin; echo x > go/bin/t"
    )
    assert (home / ".config/app/x").read_text() == (home / ".pyenv/shims/python").read_text() == "ours"
    assert not (home / "go/bin").exists() or not os.listdir(home / "go/bin")
    assert {name.partition(".held-")[0] for name in result.set_aside} <= {".cargo", "go/bin"}
    assert is_protected_at_home(f"{home}/.config/x", [str(home)])
    assert not is_protected_at_home(f"{home}/.config/nvim/init.lua", [f"{home}/.config/nvim"])


@pytest.mark.parametrize("folder", ["{project}/bin", "./bin", "{home}/programs"])
def test_folders_where_the_shell_looks_for_programs(sandbox, home, monkeypatch, folder):
    """No command puts a program there, nor makes such a folder; folders of installed packages are written."""
    make(home, **{"project/bin/x": "ours", "project/node_modules/.bin/x": "ours", "project/.venv/bin/x": "ours"})
    project = home / "project"
    (home / "programs").symlink_to("project/bin")
    installed = f"{project}/node_modules/.bin:{project}/.venv/bin"
    more = f"{folder.format(home=home, project=project)}:{project}/later:{installed}:."
    monkeypatch.setenv("PATH", f"{more}:{os.environ['PATH']}")
    script = "echo evil > bin/git; mkdir later; echo evil > later/git; echo x > node_modules/.bin/y; echo x > z"
    result = do(sandbox, project, script)
    assert os.listdir(project / "bin") == ["x"]
    assert not (project / "later").exists()
    assert {name.partition(".held-")[0] for name in result.set_aside} <= {"later"}
    assert (project / "node_modules/.bin/y").exists()
    assert (project / "z").exists()
    assert find_obeyed_part(f"{project}/bin/git", [str(project)])
    assert find_obeyed_part(f"{project}/z", [str(project)]) is None


def test_a_linked_folder_of_the_home_folder(home):
    (home / "dotfiles/config").mkdir(parents=True)
    (home / ".config").symlink_to("dotfiles/config")
    assert is_protected_at_home(f"{home}/dotfiles/config/x", [str(home)])
    assert "dotfiles/config" in find(Profile(str(home))).read_only


def test_a_project_beside_it_has_none(home):
    """The usual case costs nothing: no place is inside."""
    make(home, **{"project/x": "", ".config/lyra/x": ""})
    assert places_in(str(home / "project")) == ((), (), (), (), ())
    assert not is_own(f"{home}/project/x")
    assert is_own(f"{home}/.config/lyra/x")
    assert is_own("/etc/lyra/permissions.toml")


def test_what_lyra_obeys(home):
    paths = (f"{home}/.config/lyra/x", f"{home}/p/lyra.toml", f"{home}/p/.lyra/x", f"{home}/p/.mcp.json")
    assert all(map(is_lyras, paths))
    assert not is_lyras(f"{home}/p/main.py")


LINKED = {  # the link of the user's settings → what it leads to in the workspace
    "folder": (".config/lyra", "dotfiles/lyra", "dotfiles/lyra/permissions.toml"),
    "folder_above": (".config", "dotfiles/config", "dotfiles/config/lyra/permissions.toml"),
    "file": (".config/lyra/permissions.toml", "dotfiles/rules", "dotfiles/rules"),
    "deep_file": (".config/lyra/permissions.toml", "dotfiles/a/b/rules", "dotfiles/a/b/rules"),
    "two_links": (".config/lyra/permissions.toml", "current/rules", "dotfiles/rules"),
    "tool": (".config/lyra/tools/mine.yaml", "dotfiles/mine", "dotfiles/mine"),
}


@pytest.mark.parametrize("shape", LINKED)
def test_settings_that_are_links_into_the_workspace_stay(sandbox, home, shape):
    """Neither the file that a link leads to is written, nor is a folder on the way moved, removed or replaced, in the
    sandbox and by the file tools: the rules are those that the user wrote."""
    link, target, file = LINKED[shape]
    work = home.parent / "work"
    make(work, **{file: RULES, "other/x": ""})
    if shape == "two_links":
        (work / "current").symlink_to("dotfiles")
    (home / link).parent.mkdir(parents=True, exist_ok=True)
    (home / link).symlink_to(work / target)
    kept = home / (link if (home / link).is_file() else ".config/lyra/permissions.toml")
    assert kept.read_text() == RULES
    script = (
        f"mv dotfiles dot2; echo x > {file}; echo x > {file.replace('dotfiles', 'dot2')}; rm -f current;"
        f" rm -rf dotfiles; mkdir -p {os.path.dirname(file)}; echo x > {file}; mv {os.path.dirname(file)} moved;"
        " mkdir current; echo x > current/rules; mv other other2; ls"
    )
    result = do(sandbox, work, script)
    assert kept.read_text() == RULES, result.output.text
    assert (work / "other2/x").exists()
    real = os.path.realpath(kept)
    assert find_obeyed_part(real, [str(work)]) is not None
    for folder in (os.path.dirname(real), str(work / "dotfiles")):
        assert find_obeyed_part(f"{folder}/beside", [str(work)]) is None or shape.startswith("folder")


def test_many_sessions_are_not_looked_through_for_every_path(home, monkeypatch):
    """A file tool asks for each path; what Lyra's own folders hold is looked at once a second."""
    clock = SimClock()
    monkeypatch.setattr(protected_places, "_CLOCK", clock)
    sessions = home / ".local/share/lyra/sessions"
    for number in range(200):
        (sessions / f"{number}/files").mkdir(parents=True)
    looked: list[object] = []
    stat = os.stat
    assert not is_own(f"{home}/project/x")

    def note(path: Any, *rest: Any, **more: Any) -> os.stat_result:
        looked.append(path)
        return stat(path, *rest, **more)

    monkeypatch.setattr(os, "stat", note)
    assert not is_own(f"{home}/project/x")
    assert len(looked) < 20
    (sessions / "7/files/rules").symlink_to(home / "dotfiles/rules")
    clock.advance(1.1)
    assert is_own(f"{home}/dotfiles/rules")


def test_a_link_at_the_top_of_an_own_folder_counts_at_once(home):
    own = home / ".config/lyra"
    own.mkdir(parents=True, exist_ok=True)
    assert not is_own(f"{home}/dotfiles/keys")
    (own / "keys").symlink_to(home / "dotfiles/keys")
    assert is_own(f"{home}/dotfiles/keys")
