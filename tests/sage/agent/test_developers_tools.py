"""The developer's own tools, folders that settings and commands open, and files outside that a person opens."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from lyra.errors import ConfigError
from lyra.sage.commands.registry import run_command
from lyra.sage.session.snapshots import POOL_FOLDER
from tests.sage.agent.test_questions_asked import Person, bash, results
from tests.sage.open_session import Project, call

SCRIPT = "#!/bin/sh\necho my tool runs\n"


def put(path: Path, text: str = "", mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def home(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = project.home
    put(home / ".local/bin/mytool", SCRIPT, 0o755)
    put(home / ".pyenv/versions/3.12/bin/python3.12", SCRIPT, 0o755)
    put(home / ".nvm/versions/node/v22/bin/node", SCRIPT, 0o755)
    put(home / ".rustup/toolchains/stable/bin/rustc", SCRIPT, 0o755)
    put(home / ".cargo/registry/cache/x.crate", "a package")
    put(home / ".cargo/credentials.toml", "secret")
    put(home / ".cache/pip/http/a", "a wheel")
    put(home / ".tool-versions", "python 3.12")
    put(home / "env/pyvenv.cfg", f"home = {home}/.pyenv/versions/3.12/bin\n")
    put(home / "env/bin/pytest", SCRIPT, 0o755)
    for name in (
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".netrc",
        ".bash_history",
        "Documents/letter",
        ".config/gh/hosts",
    ):
        put(home / name, "secret")
    monkeypatch.setenv("VIRTUAL_ENV", str(home / "env"))
    folders = (
        home / "env/bin",
        home / ".local/bin",
        home / ".nvm/versions/node/v22/bin",
        *os.environ["PATH"].split(":"),
    )
    monkeypatch.setenv("PATH", ":".join(map(str, folders)))
    return home


async def run(project: Project, *commands: str, **options: Any) -> list[str]:
    person = Person("allow")
    async with project.open(*bash(*commands), {"text": "."}, options={"attended": True}, **options) as session:
        return results(await person.talk(session, "go"))


async def test_the_developers_tools_are_there(project: Project, home: Path) -> None:
    """Programs by their bare names, the active environment, and caches of packages, which can be read."""
    outputs = await run(
        project,
        "mytool && pytest && node",
        f"cat {home}/.cargo/registry/cache/x.crate {home}/.cache/pip/http/a {home}/.tool-versions",
        f"ls {home}/.pyenv/versions {home}/.rustup/toolchains && echo $VIRTUAL_ENV $PYENV_ROOT $RUSTUP_HOME",
    )
    assert outputs[0].count("my tool runs") == 3
    assert "a packagea wheelpython 3.12" in outputs[1]
    assert f"{home}/env {home}/.pyenv {home}/.rustup" in outputs[2]


async def test_environments_that_are_not_active_are_there_by_their_usual_names(
    project: Project, tmp_path: Path
) -> None:
    """Those in `~/.venvs` and `~/.virtualenvs`, with an interpreter that lies where nothing else is shown."""
    installed, library = Path(sys.base_prefix, "bin"), f"lib/python3.{sys.version_info.minor}/site-packages"
    for folder in (".venvs", ".virtualenvs"):
        environment = project.home / folder / "shop"
        put(environment / "pyvenv.cfg", f"home = {installed}\n")
        put(environment / library / "tariff.py", f"print('in {folder}')\n")
        (environment / "bin").mkdir()
        (environment / "bin/python").symlink_to(installed / "python3")
    (output,) = await run(project, "~/.venvs/shop/bin/python -m tariff && ~/.virtualenvs/shop/bin/python -m tariff")
    assert output.splitlines()[:2] == ["in .venvs", "in .virtualenvs"]


async def test_nothing_else_of_the_home_folder_is_there(project: Project, home: Path) -> None:
    """Neither keys nor documents, and the tools cannot be written."""
    outputs = await run(
        project,
        f"find {home} -type f | sort",
        f"cat {home}/.ssh/id_ed25519 {home}/.cargo/credentials.toml {home}/Documents/letter {home}/.netrc",
        f"echo x > {home}/.local/bin/mytool; echo x > {home}/.cargo/registry/y; echo x > {home}/new",
    )
    seen = {line for line in outputs[0].splitlines() if line.startswith(str(home))}
    shown = (".local/bin", ".pyenv", ".nvm", ".rustup", ".cargo/registry", ".cache/pip", ".tool-versions", "env")
    assert {line for line in seen if not line.removeprefix(f"{home}/").startswith(shown)} == set()
    assert len(seen) >= 8
    assert "secret" not in outputs[1]
    assert (home / ".local/bin/mytool").read_text() == SCRIPT
    assert not (home / "new").exists()


@pytest.mark.parametrize("by", ["flags", pytest.param("variables", marks=pytest.mark.long)])
async def test_settings_open_further_folders(
    project: Project, tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sandbox.readable` to read, `sandbox.writable` to write; folders of keys and Lyra's own stay hidden."""
    put(tmp_path / "data/rows", "the rows")
    put(project.home / ".ssh/id_ed25519", "secret")
    (tmp_path / "cache").mkdir()
    places = f'["{tmp_path}/data", "{project.home}/.ssh"]'
    flags = (f"sandbox.readable={places}", f'sandbox.writable=["{tmp_path}/cache"]')
    commands = (
        f"cat {tmp_path}/data/rows",
        f"echo x > {tmp_path}/cache/made && echo x > {tmp_path}/data/made",
        f"cat {project.home}/.ssh/id_ed25519",
    )
    closed = await run(project, *commands)
    assert not (tmp_path / "cache/made").exists()
    assert "the rows" not in closed[0]
    if by == "variables":
        monkeypatch.setenv("LYRA_SANDBOX_READABLE", places)
        monkeypatch.setenv("LYRA_SANDBOX_WRITABLE", f"{tmp_path}/cache")
    outputs = await run(project, *commands, flags=flags if by == "flags" else ())
    assert "the rows" in outputs[0]
    assert (tmp_path / "cache/made").exists()
    assert not (tmp_path / "data/made").exists()
    assert "secret" not in outputs[2]


async def test_a_read_outside_asks(project: Project, tmp_path: Path) -> None:
    """A yes opens this file alone; `Read` as a rule is no answer, its path is; what is read is text from outside."""
    notes, other = put(tmp_path / "notes.txt", "the notes\n"), put(tmp_path / "other.txt", "other\n")
    script = [
        call("Read", file_path=str(notes)),
        call("Read", file_path=str(other)),
        *bash("touch made"),
        {"text": "."},
    ]
    person = Person("allow")
    rules = ("Read", "Bash(touch *)", f"Read({other})")
    async with project.open(*script, options={"attended": True, "allow": rules}) as session:
        lines = await person.talk(session, "go")
    assert [str(notes) in subject for subject in person.asked] == [True, False]
    assert person.asked[1] == "touch made"
    assert "the notes" in results(lines)[0]
    assert "other" in results(lines)[1]


async def test_a_read_outside_is_denied_by_a_no_and_without_a_person(project: Project, tmp_path: Path) -> None:
    """Nor is Lyra's own folder opened, nor anything but Read."""
    notes = put(tmp_path / "notes.txt", "the notes\n")
    own = put(project.home / ".config/lyra/lyra.toml", "")
    script = [call("Read", file_path=str(notes)), call("Read", file_path=str(own)), {"text": "."}]
    write = call("Write", file_path=str(tmp_path / "made.txt"), content="x")
    for attended in (True, False):
        person = Person("deny")
        async with project.open(*script[:2], write, {"text": "."}, options={"attended": attended}) as session:
            lines = await person.talk(session, "go")
        assert len(person.asked) == attended
        assert "the notes" not in str(results(lines))
        assert not (tmp_path / "made.txt").exists()


async def test_a_folder_that_is_added_is_worked_in_and_stays(project: Project, tmp_path: Path) -> None:
    """By `/add-dir`: files there are edited, undone, and the folder is there when the session is opened again."""
    more = tmp_path / "more"
    put(more / "a.txt", "one\n")
    read, write = (
        call("Read", file_path=str(more / "a.txt")),
        call("Write", file_path=str(more / "a.txt"), content="two\n"),
    )

    async with project.open(read, write, {"text": "."}, options={"attended": True, "mode": "accept-edits"}) as session:
        await run_command(session, f"/add-dir {more}")
        await Person("deny").talk(session, "go")
        assert (more / "a.txt").read_text() == "two\n"
        await session.undo()
        assert (more / "a.txt").read_text() == "one\n"
    async with project.open(options={"attended": True}, resume="") as session:
        assert session.headless.setup.also == (str(more),)


async def test_what_is_added_is_kept_once_for_all_sessions(project: Project, tmp_path: Path) -> None:
    """Undo needs the contents of an added folder; sessions share them, and the last one takes them along."""
    more = tmp_path / "more"
    for number in range(20):
        put(more / f"{number}.txt", f"{number}\n" * 50_000)
    added = {"attended": True, "mode": "sandboxed", "also": (str(more),)}
    pool = project.data / POOL_FOLDER
    sessions = []
    for _ in range(3):
        script = [*bash(f"rm {more}/3.txt"), {"text": "."}]
        async with project.open(*script, options=added) as session:
            await Person("deny").talk(session, "go")
            assert not (more / "3.txt").exists()
            await session.undo()
            assert (more / "3.txt").read_text() == "3\n" * 50_000
            sessions.append(session.place)
    assert {path.stat().st_nlink for path in pool.iterdir()} == {4}  # one content, three sessions
    written = {entry.stat().st_ino: entry.stat().st_size for entry in project.data.rglob("*") if entry.is_file()}
    assert sum(size for size in written.values() if size >= 100_000) < 20 * 150_000 * 1.2
    for place in sessions:
        shutil.rmtree(place)
    (tmp_path / "other").mkdir()
    put(tmp_path / "other/a", "a")
    added["also"] = (str(tmp_path / "other"),)
    async with project.open(*bash("true"), {"text": "."}, options=added) as session:
        await Person("deny").talk(session, "go")
    assert [path for path in pool.iterdir() if path.stat().st_size >= 100_000] == []


async def test_a_folder_with_keys_in_it_is_not_opened(project: Project) -> None:
    """The home folder, or one that has the keys of a program in it, is a mistake that names them."""
    put(project.home / ".config/gh/hosts.yml", "secret")
    for place in (project.home, project.home / ".config"):
        for key in ("sandbox.readable", "sandbox.writable"):
            with pytest.raises(ConfigError, match="/\\.config/gh lies"):
                await run(project, "true", flags=(f'{key}=["{place}"]',))
