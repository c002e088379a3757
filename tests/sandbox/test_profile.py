"""A Grant and a workspace become a profile; protected paths are found."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from lyra.core.rights.capability import Grant
from lyra.errors import CapabilityDenied, ConfigError, SandboxUnavailable
from lyra.sandbox import Limits, Profile, Sandbox
from lyra.sandbox.protected import find, find_appeared


def _grant(*allow: str, deny: tuple[str, ...] = ()) -> Grant:
    return Grant(allow=allow, deny=deny)


def test_rules_become_folders(tmp_path):
    """Whole folders open; a wildcard in the middle opens nothing; no network without a rule."""
    for name in ("ws", "data", "out"):
        (tmp_path / name).mkdir()
    grant = _grant(
        f"fs.read:{tmp_path}/ws/**",
        f"fs.read:{tmp_path}/data/**",
        f"fs.read:{tmp_path}/*/x/**",
        f"fs.write:{tmp_path}/out/**",
    )
    profile = Profile.of(grant, str(tmp_path / "ws"))
    assert not profile.writable
    assert profile.readable == (f"{tmp_path}/ws", f"{tmp_path}/data")
    assert profile.writable_also == (f"{tmp_path}/out",)
    assert profile.egress is None


def test_environments_at_home_are_those_that_may_be_read(tmp_path, monkeypatch):
    """Whole folders of them, and one alone; a folder without `pyvenv.cfg` is none."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (".venvs/web", ".venvs/notes", ".virtualenvs/old", "work/.venv"):
        (tmp_path / name).mkdir(parents=True)
    for name in (".venvs/web", ".virtualenvs/old", "work/.venv"):
        (tmp_path / name / "pyvenv.cfg").touch()
    profile = Profile(str(tmp_path / "work"), readable=(f"{tmp_path}/.venvs", f"{tmp_path}/work/.venv", "/usr"))
    assert profile.find_home_links() == [(".venvs", f"{tmp_path}/.venvs")]
    assert sorted(profile.list_environments()) == [f"{tmp_path}/.venvs/web", f"{tmp_path}/work/.venv"]


def test_writing_and_the_network_need_rules(tmp_path):
    """Each of them is there exactly when the Grant names it."""
    ws = str(tmp_path)
    assert Profile.of(_grant(f"fs.read:{ws}/**", f"fs.write:{ws}/**"), ws).writable
    assert Profile.of(_grant(f"fs.read:{ws}/**", "net.http:example.com"), ws).egress is not None
    assert Profile.of(Grant.all(), ws).writable
    narrowed = Grant.all().narrow([f"fs.read:{ws}/**"])
    assert not Profile.of(narrowed, ws).writable


def test_a_grant_that_cannot_read_the_workspace(tmp_path):
    """Denied, with the rule that would help."""
    for grant in (_grant("fs.read:/elsewhere/**"), Grant.none(), _grant("fs.*", deny=(f"fs.read:{tmp_path}/**",))):
        with pytest.raises(CapabilityDenied, match="does not allow to read"):
            Profile.of(grant, str(tmp_path))


@pytest.mark.parametrize("path", ["/", "/etc", "/usr", "/tmp", "/root", "/home", "/proc", "/nowhere/at/all"])
def test_a_workspace_is_the_folder_of_a_project(path):
    """Never the system, and never everybody's folder."""
    with pytest.raises(ConfigError):
        Profile(path)


def test_symlinks_are_resolved_once(tmp_path):
    """A workspace by another name is the same workspace."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert Profile(str(tmp_path / "link")).workspace == str(tmp_path / "real")
    (tmp_path / "system").symlink_to("/etc")
    with pytest.raises(ConfigError):
        Profile(str(tmp_path / "system"))


def test_the_environment_is_an_allow_list(tmp_path, monkeypatch):
    """Nothing of ours goes in unless the profile names it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("LD_PRELOAD", "/x.so")
    monkeypatch.setenv("TZ", "UTC")
    env = Profile(str(tmp_path), env={"MODE": "test"}).environment(home="/h", temporary="/t")
    assert set(env) <= {
        "PATH",
        "HOME",
        "TMPDIR",
        "LYRA_SANDBOX",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TERM",
        "TZ",
        "MODE",
    } | {
        "LANGUAGE",
        "COLORTERM",
        "NO_COLOR",
    }
    assert (env["HOME"], env["TMPDIR"], env["MODE"], env["TZ"]) == ("/h", "/t", "test", "UTC")
    for name in ("A=B", "", "A\0"):
        with pytest.raises(ConfigError):
            Profile(str(tmp_path), env={name: "x"})


def test_the_search_path_holds_only_what_can_be_seen(tmp_path, monkeypatch):
    """Folders of PATH that are not in the sandbox are left out."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/opt/hidden/bin:relative:/usr/bin")
    path = Profile(str(tmp_path)).environment(home="/", temporary="/")["PATH"].split(":")
    assert path[:2] == [f"{tmp_path}/bin", "/usr/bin"]
    assert "/opt/hidden/bin" not in path
    assert "relative" not in path


def _make(root, *names):
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")


def test_protected_paths_are_found(tmp_path):
    """By name, a few folders deep; examples are left alone; searches do not go into what is protected."""
    _make(
        tmp_path, ".git/config", ".env", ".env.local", ".env.example", "a/b/.env", "a/key.pem", "a/id_rsa", "src/x.py"
    )
    _make(tmp_path, ".git/.env", "node_modules/m/.env")
    protected = find(Profile(str(tmp_path)))
    assert protected.read_only == (".git",)
    assert protected.hidden == (".env", ".env.local", "a/b/.env", "a/id_rsa", "a/key.pem")
    assert protected.complete


def test_protected_paths_of_ones_own(tmp_path):
    """Names and paths; a path may lie deeper than the search goes."""
    _make(tmp_path, "Makefile", "a/b/c/d/e/secret", "keep/x")
    protected = find(Profile(str(tmp_path), protected=("Makefile", "keep"), hidden=("a/b/c/d/e/secret",)))
    assert protected.read_only == ("Makefile", "keep")
    assert protected.hidden == ("a/b/c/d/e/secret",)


def test_denies_inside_the_workspace(tmp_path):
    """What the Grant does not let one read is hidden, what it does not let one write is read-only."""
    _make(tmp_path, "a/b/c/d/deep", "notes", "src/x")
    grant = _grant("fs.*", deny=(f"fs.read:{tmp_path}/a/b/c/d/deep", f"fs.write:{tmp_path}/notes"))
    profile = Profile.of(grant, str(tmp_path))
    protected = find(profile)
    assert protected.hidden == ("a/b/c/d/deep",)
    assert protected.read_only == ("notes",)


def test_a_protected_symlink_protects_what_it_leads_to(tmp_path):
    """And says that the link itself is open; one that leads out protects nothing outside."""
    _make(tmp_path, "ws/real/")
    _make(tmp_path, "outside/")
    (tmp_path / "ws/.git").symlink_to("real")
    (tmp_path / "ws/.env").symlink_to(tmp_path / "outside")
    protected = find(Profile(str(tmp_path / "ws")))
    assert (protected.read_only, protected.hidden) == (("real",), ())
    assert sorted(protected.links) == [".env", ".git"]


def test_where_not_everything_could_be_searched_nothing_runs(sandbox, tmp_path, monkeypatch):
    """A command that may write could hide a protected file behind many others."""
    monkeypatch.setattr("lyra.sandbox.protected.SANDBOX_SCAN_ENTRIES_MAX", 10)
    _make(tmp_path, *(f"f{n}" for n in range(30)))
    assert not find(Profile(str(tmp_path))).complete
    with pytest.raises(SandboxUnavailable, match="to look through for protected paths"):
        asyncio.run(sandbox.run(["true"], Profile(str(tmp_path))))


def test_what_appeared(tmp_path):
    """New protected names are told."""
    profile = Profile(str(tmp_path))
    before = find(profile)
    _make(tmp_path, ".git/hooks/x", "a/.env")
    assert find_appeared(profile, before).appeared == (".git", "a/.env")


def test_a_read_only_workspace(sandbox, tmp_path):
    """Nothing in it can be written, all of it can be read."""
    _make(tmp_path, "file")
    result = asyncio.run(
        sandbox.run(["sh", "-c", "cat file; echo y > file; echo z > new"], Profile(str(tmp_path), writable=False))
    )
    assert result.output.text.startswith("x")
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "x"


def test_more_folders(sandbox, tmp_path):
    """Readable and writable ones beside the workspace."""
    _make(tmp_path, "ws/", "data/file", "out/")
    profile = Profile(str(tmp_path / "ws"), readable=(f"{tmp_path}/data",), writable_also=(f"{tmp_path}/out",))
    script = f"cat {tmp_path}/data/file; echo y > {tmp_path}/out/new; echo y > {tmp_path}/data/new"
    result = asyncio.run(sandbox.run(["sh", "-c", script], profile))
    assert result.output.text.startswith("x")
    assert os.listdir(tmp_path / "out") == ["new"]
    assert os.listdir(tmp_path / "data") == ["file"]


def test_unix_sockets_only_when_asked_for(sandbox, tmp_path):
    """The profile's switch, and nothing else."""
    code = "import socket; socket.socket(socket.AF_UNIX); print('ma' + 'de')"  # its text may be in an error
    for wanted in (False, True):
        profile = Profile(str(tmp_path), unix_sockets=wanted, readable=(os.path.dirname(os.__file__), sys.base_prefix))
        result = asyncio.run(sandbox.run([os.path.realpath(sys.executable), "-IS", "-c", code], profile))
        assert ("made" in result.output.text) is wanted


def test_the_whole_file_system_without_its_keys(sandbox, tmp_path):
    """Where everything may be read, shadow passwords and the sockets of services still may not."""
    profile = Profile(str(tmp_path), readable=("/",))
    result = asyncio.run(
        sandbox.run(["sh", "-c", "cat /etc/shadow; ls /run; echo x > /etc/lyra-attack; echo end"], profile)
    )
    assert result.output.text.rstrip().endswith("end")
    assert "root:" not in result.output.text
    assert not os.path.exists("/etc/lyra-attack")


def test_other_folders_are_searched_too(tmp_path):
    """What may be written besides the workspace has protected paths like it, and tells what appeared."""
    for folder in ("ws", "also/.git", "also/sub"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "also" / "sub" / ".env").write_text("KEY=1")
    profile = Profile(str(tmp_path / "ws"), writable_also=(str(tmp_path / "also"),))
    protected = find(profile)
    ((root, inside),) = protected.also
    assert root == str(tmp_path / "also")
    assert (inside.read_only, inside.hidden) == ((".git",), ("sub/.env",))
    (tmp_path / "also" / ".vscode").mkdir()
    news = find_appeared(profile, protected)
    assert news.appeared == (f"{root}/.vscode",)
    assert news.set_aside[0].startswith(f"{root}/.vscode.held-")


def test_a_profile_of_a_grant_protects_and_hides_what_it_is_told(sandbox, tmp_path):
    """Beside the usual paths: a protected one can be read and not written, a hidden one not even read."""
    for name, text in {"kept": "old", "free": "old", "secret": "word"}.items():
        (tmp_path / name).write_text(text)
    profile = Profile.of(Grant.all(), str(tmp_path), protected=["kept"], hidden=["secret"])
    result = asyncio.run(sandbox.run(["sh", "-c", "cat kept secret; echo new > kept; echo new > free"], profile))
    assert "old" in result.output.text
    assert "word" not in result.output.text
    assert ((tmp_path / "kept").read_text(), (tmp_path / "free").read_text()) == ("old", "new\n")


def test_a_profile_of_a_grant_may_allow_unix_sockets(sandbox, tmp_path):
    """Only where it is said."""
    code = "import socket; socket.socket(socket.AF_UNIX); print('ma' + 'de')"  # its text may be in an error
    made = []
    for wanted in (False, True):
        libraries = (os.path.dirname(os.__file__), sys.base_prefix)
        profile = Profile.of(_grant(f"fs.read:{tmp_path}/**"), str(tmp_path), readable=libraries, unix_sockets=wanted)
        result = asyncio.run(sandbox.run([os.path.realpath(sys.executable), "-IS", "-c", code], profile))
        made.append("made" in result.output.text)
    assert made == [False, True]


def test_the_limits_of_a_profile_of_a_grant_hold(tmp_path):
    """Those that are given, and not the usual ones."""
    grant = _grant(f"fs.read:{tmp_path}/**")
    profile = Profile.of(grant, str(tmp_path), limits=Limits(wall_s=0.5))
    result = asyncio.run(Sandbox().run(["sleep", "20"], profile))
    assert (result.limits_hit, result.ok) == (("wall",), False)
