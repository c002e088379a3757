"""The look after a command: to its end, beside other commands, and after a process that was killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lyra
from lyra.sandbox import Profile, running_commands
from lyra.sandbox.protected import News, find
from lyra.sandbox.running_commands import _make_change_test, _mark_names, _running

_PACKAGES = os.pathsep.join(str(Path(file).parents[1]) for file in (lyra.__file__,) if file)
_RUNS = """
import asyncio, sys
from lyra.sandbox import Profile, Sandbox
async def main():
    script = sys.argv[3] + "; echo up; sleep 60"
    job = await Sandbox(tiers=(sys.argv[1],)).start(["sh", "-c", script], Profile(sys.argv[2]))
    while not job.output.total_bytes: await asyncio.sleep(0.01)
    print("up", flush=True)
    await job.wait()
asyncio.run(main())
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder with Lyra's own folder, and a workspace in it."""
    (tmp_path / "home/.config/lyra").mkdir(parents=True)
    (tmp_path / "home/work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path / "home"


def killed(tier: str, workspace: Path, script: str) -> None:
    """A Lyra that is killed while its command runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", _RUNS, tier, str(workspace), script],
        env={**os.environ, "PYTHONPATH": _PACKAGES},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.kill()
    process.communicate()


def held(result) -> list[str]:
    return sorted(name.partition(".held-")[0] for name in result.set_aside)


def run(sandbox, workspace: Path, script: str):
    return asyncio.run(sandbox.run(["bash", "-c", script], Profile(str(workspace))))


def test_a_heap_of_files_does_not_hide_what_is_new(sandbox, tmp_path, monkeypatch):
    """The search goes on beyond the bound of the one before the command, in a thread."""
    monkeypatch.setattr("lyra.sandbox.job._AT_ONCE_MAX", 20)
    monkeypatch.setattr("lyra.sandbox.protected.SANDBOX_SCAN_ENTRIES_MAX", 50)
    monkeypatch.setattr("lyra.sandbox.protected._AT_ONCE", 10)
    result = run(
        sandbox, tmp_path, "mkdir -p p/q/r; echo x > p/q/r/.envrc; mkdir {a..j}; touch {a..j}/{1..9}; chmod 0 p/q"
    )
    assert held(result) == ["p/q/r/.envrc"]
    is_closed = os.getuid() != 0 and b"not permitted" not in result.output.head  # the second tier refuses the chmod
    assert (result.reopened, result.limits_hit) == (("p/q",) if is_closed else (), ())


def test_a_search_that_does_not_come_to_its_end_is_told(sandbox, tmp_path, monkeypatch):
    monkeypatch.setattr("lyra.sandbox.protected.SANDBOX_SCAN_AFTER_MAX", 30)
    result = run(sandbox, tmp_path, "touch .npmrc f{1..50}")
    assert result.limits_hit == ("search",)
    assert not result.ok


def test_a_search_that_fails_is_told(sandbox, tmp_path, monkeypatch, caplog):
    def fail(*_, **__):
        raise OSError("no more")

    monkeypatch.setattr("lyra.sandbox.running_commands.find_appeared", fail)
    assert run(sandbox, tmp_path, "true").limits_hit == ("search",)
    assert "no more" in caplog.text


def test_a_folder_inside_many_others_is_set_aside(sandbox, tmp_path):
    """Each of them is searched after it was renamed."""
    result = run(sandbox, tmp_path, "mkdir -p a/.vscode/.idea/.vscode/.idea/.vscode/.idea/.husky")
    assert (len(result.set_aside), result.limits_hit) == (7, ())


def test_the_end_of_a_command_ends_what_an_older_one_has_made(sandbox, tmp_path):
    async def main():
        job = await sandbox.start(["bash", "-c", "touch .envrc; echo up; sleep 60"], Profile(str(tmp_path)))
        while not job.output.total_bytes:
            await asyncio.sleep(0.01)
        second = await sandbox.run(["true"], Profile(str(tmp_path)))
        job.kill()
        return second, await job.wait()

    second, first = asyncio.run(main())
    assert (held(second), held(first)) == ([".envrc"], [])
    assert not _running


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("mkdir d; echo x > d/.envrc", ["d/.envrc"]),
        ("mkdir -p d/objects d/refs; echo x > d/HEAD", ["d/HEAD"]),
        ("mkdir -p c; echo x > c/config.toml; ln -s c .cargo", [".cargo"]),
        ("true", []),
    ],
)
def test_the_look_after_a_killed_process_is_finished_by_the_next_command(sandbox, tier, home, script, names):
    killed(tier, home / "work", script)
    assert len(os.listdir(home / ".config/lyra/running")) == 1
    result = run(sandbox, home / "work", "true")
    assert held(result) == names
    assert os.listdir(home / ".config/lyra") == []
    assert run(sandbox, home / "work", "true").set_aside == ()


def test_a_link_that_a_killed_command_changed_is_restored(sandbox, tier, home):
    (home / "work/env.sh").write_text("ours")
    (home / "work/.envrc").symlink_to("/etc/hostname")
    killed(tier, home / "work", "touch evil; ln -sfn evil .envrc; true")
    run(sandbox, home / "work", "true")
    assert os.readlink(home / "work/.envrc") == "/etc/hostname"


def test_what_was_made_later_stays(sandbox, tier, home, monkeypatch):
    """The user has made it when the command could not run any more."""
    killed(tier, home / "work", "true")
    (home / "work/.envrc").write_text("ours")
    monkeypatch.setattr(
        "lyra.sandbox.running_commands._make_change_test", lambda began, until: _make_change_test(0, began)
    )
    assert run(sandbox, home / "work", "true").set_aside == ()


def test_a_mark_that_is_no_json_is_removed(sandbox, home, caplog):
    from lyra.sandbox.running_commands import _prefix

    folder = home / ".config/lyra/running"
    folder.mkdir()
    (folder / f"{_prefix(str(home / 'work'))}x").write_text("{")
    assert run(sandbox, home / "work", "true").ok
    assert "killed process failed" in caplog.text
    assert not folder.exists()


def test_without_the_users_folder_no_mark_is_written(sandbox, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "work").mkdir()
    assert run(sandbox, tmp_path / "work", "true").ok
    assert os.listdir(tmp_path) == ["work"]


def test_a_command_may_begin_while_another_thread_writes_its_mark(home, monkeypatch):
    """The marks of this process are listed while one of its commands has none yet."""
    profile = Profile(str(home / "work"))
    listed = []
    monkeypatch.setattr(running_commands, "_write_mark", lambda profile, _before: listed.append(_mark_names(profile)))
    running_commands.RunningCommand(profile, find(profile), News()).end()
    assert listed == [[]]
