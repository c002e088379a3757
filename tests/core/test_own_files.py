"""The files that Lyra obeys are listed in one place, and their folders are open to their owner alone."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from lyra.config import KEYS, Config
from lyra.core import own_files
from lyra.core.own_files import VARIABLES, add_own_path, find_own_paths, is_opened, make_folder
from lyra.core.user_folders import data_folder, user_folder
from lyra.kernel.kernel import Kernel
from lyra.mcp.approvals import Approvals
from lyra.models.script import load_script
from lyra.observe.audit import attach_audit
from lyra.sandbox.protection.protected_places import is_own, places_in
from lyra.store.sqlite import SqliteStore
from lyra.tools.permissions.answers import Answers
from lyra.tools.permissions.rules import Rule
from lyra.tools.yaml.folder import DynamicTools


@pytest.fixture(autouse=True)
def nothing_added(monkeypatch, tmp_path):
    """Each test starts without the paths that others have added, in a home of its own."""
    monkeypatch.setattr(own_files, "_added", {})
    monkeypatch.setattr(own_files, "_opened", {})
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", *VARIABLES):
        monkeypatch.delenv(name, raising=False)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_users_folder(monkeypatch, tmp_path):
    """By XDG_CONFIG_HOME or below the home; both are Lyra's own, since another Lyra may not have the variable."""
    usual, data = f"{tmp_path}/home/.config/lyra", f"{tmp_path}/home/.local/share/lyra"
    assert user_folder(os.environ) == usual
    assert find_own_paths().hidden == (usual, data)
    monkeypatch.setenv("XDG_CONFIG_HOME", f"{tmp_path}/conf")
    assert user_folder(os.environ) == f"{tmp_path}/conf/lyra"
    assert find_own_paths().hidden == (f"{tmp_path}/conf/lyra", data, usual)
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert user_folder(os.environ) == usual
    assert user_folder({}) is None


def test_the_data_folder(monkeypatch, tmp_path):
    """By XDG_DATA_HOME or below the home; both are hidden, since sessions with their transcripts lie there."""
    usual = tmp_path / "home/.local/share/lyra"
    assert data_folder() == usual
    monkeypatch.setenv("XDG_DATA_HOME", f"{tmp_path}/data")
    assert data_folder() == tmp_path / "data/lyra"
    assert {str(usual), f"{tmp_path}/data/lyra"} <= set(find_own_paths().hidden)
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert data_folder() == usual
    monkeypatch.setenv("HOME", "relative")
    assert data_folder().is_absolute()


def test_file_tools_neither_read_nor_write_the_data_folder(tmp_path):
    """Also where the workspace is the home folder."""
    session = f"{tmp_path}/home/.local/share/lyra/sessions/20261117-ab12cd/session.db"
    assert is_own(session)
    assert is_own(session, hidden=True)
    places = places_in(f"{tmp_path}/home")
    assert ".local/share/lyra" in places.missing
    os.makedirs(f"{tmp_path}/home/.local/share/lyra")
    assert ".local/share/lyra" in places_in(f"{tmp_path}/home").hidden


def test_variables_that_name_files(monkeypatch, tmp_path):
    """Every setting that is a file has its variable in the list; a URL and `memory` are no files."""
    named = {key.variable for key in KEYS.values() if key.type in ("store", "file")}
    assert named < set(VARIABLES)
    monkeypatch.setenv("LYRA_KERNEL_STORE", f"{tmp_path}/runs.db")
    assert find_own_paths().read_only == tuple(f"{tmp_path}/runs.db{end}" for end in ("", "-wal", "-shm", "-journal"))
    monkeypatch.setenv("LYRA_KERNEL_STORE", f"sqlite://{tmp_path}/runs.db")
    assert find_own_paths().read_only[0] == f"{tmp_path}/runs.db"
    for word in ("memory", "postgresql://host/db", "env:STORE", ""):
        monkeypatch.setenv("LYRA_KERNEL_STORE", word)
        assert find_own_paths().read_only == ()


def test_what_was_opened_is_added(tmp_path):
    """Stores, audit logs, tools, scripts and configured files, wherever they lie."""
    folder = tmp_path / "work"
    folder.mkdir()
    SqliteStore(folder / "a.db").close()
    attach_audit(Kernel("memory"), folder / "audit.jsonl")
    (folder / "tools").mkdir()
    DynamicTools(folder / "tools", workspace=str(folder))
    (folder / "script.yaml").write_text("sequence:\n  - text: hi\n")
    load_script(folder / "script.yaml")
    Config.load(folder, {}, flags=[f"kernel.store={folder}/b.db"])
    names = {os.path.relpath(path, folder) for path in find_own_paths().read_only}
    assert {"a.db", "a.db-wal", "a.db-journal", "audit.jsonl", "tools", "script.yaml", "b.db"} <= names
    assert is_opened(f"{folder}/a.db")
    assert is_opened(f"{folder}/audit.jsonl")
    assert not is_opened(f"{folder}/b.db")


def test_only_so_many_are_kept(tmp_path):
    for number in range(1_000):
        add_own_path(tmp_path / str(number))
    paths = find_own_paths().read_only
    assert len(paths) < 1_000
    assert paths[-1] == f"{tmp_path}/999"


def test_the_installation_is_its_own(monkeypatch):
    """The environment that Lyra runs in and the rules of the machine; a source tree is not, since people edit it."""
    code = find_own_paths().code
    assert "/etc/lyra" in code
    if sys.prefix != sys.base_prefix:
        assert sys.prefix in code
    assert not any(path.startswith(os.path.dirname(own_files.__file__)) for path in code) or "-packages/" in code
    assert not any(path in ("/", "/usr", os.path.expanduser("~")) for path in code)
    monkeypatch.setattr(own_files, "__file__", "/opt/x/lib/site-packages/lyra/core/own_files.py")
    own_files._installation.cache_clear()
    try:
        assert "/opt/x/lib/site-packages/lyra" in own_files._installation()
    finally:
        own_files._installation.cache_clear()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277, 0o777])
def test_a_lyra_folder_is_open_to_its_owner_alone(tmp_path, umask):
    """Whatever the umask says, and wherever in a path it is."""
    before = os.umask(umask & 0o077 if os.getuid() else umask)
    try:
        make_folder(tmp_path / ".lyra")
        make_folder(tmp_path / "a/.lyra")
        make_folder(tmp_path / "b/lyra/answers", private=True)
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in (".lyra", "a/.lyra", "b/lyra", "b/lyra/answers")] == [0o700] * 4


def test_folders_that_exist_stay_as_they_are(tmp_path):
    (tmp_path / ".lyra").mkdir(mode=0o750)
    make_folder(tmp_path / ".lyra/audit")
    assert mode(tmp_path / ".lyra") == 0o750
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file")


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_everything_that_makes_a_private_folder(tmp_path):
    """A store, an audit log, an answer and a consent, with a umask that removes nothing."""
    SqliteStore(tmp_path / "p/.lyra/lyra.db").close()
    attach_audit(Kernel("memory"), tmp_path / "p/.lyra/audit/log.jsonl")
    (tmp_path / "q").mkdir()
    attach_audit(Kernel("memory"), tmp_path / "q/.lyra/audit/log.jsonl")
    Answers(str(tmp_path)).add(Rule("Read", "allow"))
    assert mode(tmp_path / "p/.lyra") == mode(tmp_path / "q/.lyra") == 0o700
    home = tmp_path / "home/.config/lyra"
    assert mode(home) == mode(home / "answers") == 0o700
    (home / "answers").rename(tmp_path / "away")
    (home).rename(tmp_path / "away2")
    Approvals.of_user().consent("f", "name")
    assert mode(home) == 0o700
