"""Attempts that the look after a command has to find: behind links, behind a heap of files, beside it, after its death.

Each names a path that a program of the user would obey. It counts as left when something has that path afterwards.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import lyra
from lyra.sandbox import Limits, Profile, protected
from verify.attacks.obeyed.ground import Ground, Outcome, home

__all__ = ["ATTEMPTS", "run"]


class Attempt(NamedTuple):
    """Files of the project, the commands, and the path that must not exist afterwards."""

    files: Mapping[str, str]
    steps: tuple[str, ...]
    path: str


_PACKAGES: Final = ("venv", ".venv", "node_modules", "__pycache__", ".tox")
_NAMES: Final = (".envrc", ".vscode/tasks.json", ".npmrc", ".git/config", ".ssh/config")
_SETTINGS: Final = (
    ".cargo/config.toml",
    ".bundle/config",
    ".yarn/plugins",
    ".config/mise",
    ".config/gh",
    ".m2/settings.xml",
)
_MAKE: Final = "make() { mkdir -p $(dirname $1); echo evil > $1; }; "
_LIMITS: Final = Limits(wall_s=120, memory_bytes=1 << 30, processes=128)
_KILLED: Final = """
import asyncio, sys
from lyra.sandbox import Profile, Sandbox
async def main():
    job = await Sandbox(tiers=(sys.argv[1],)).start(["bash", "-c", sys.argv[3] + "; echo up; sleep 60"], Profile(sys.argv[2]))
    while not job.output.total_bytes: await asyncio.sleep(0.01)
    print("up", flush=True)
    await job.wait()
asyncio.run(main())
"""


def _attempts() -> Iterator[tuple[str, Attempt]]:
    for folder in _PACKAGES:
        for name in _NAMES:
            moved = f"mkdir -p {folder}; mv src {folder}/src; make {folder}/src/{name}"
            yield (
                f"{name} in {folder}, by a new link",
                Attempt({}, (f"{moved}; ln -s {folder}/src src",), f"src/{name}"),
            )
        old = {f"{folder}/a/file": "x", "a": f"-> {folder}/a"}
        yield f"in {folder}, by an old link", Attempt(old, (f"make {folder}/a/.envrc",), "a/.envrc")
        steps = (f"make {folder}/a/.envrc", f"ln -s {folder}/a b")
        yield f"in {folder}, by a link of a later command", Attempt(old, steps, "b/.envrc")
    for name in _SETTINGS:
        folder, _, last = name.rpartition("/")
        yield f"{name} by a new link", Attempt({}, (f"make c/{last}; ln -s c {folder}",), name)
        yield f"{name} by two links", Attempt({}, (f"make c/{last}; ln -s c d; ln -s d {folder}",), name)
        yield f"{name} by a later file", Attempt({}, (f"mkdir c; ln -s c {folder}", f"make c/{last}"), name)
        yield f"{name} by an old link", Attempt({"c/x": "", folder: "-> c"}, (f"make c/{last}",), name)
        yield f"{name} by a dangling link", Attempt({folder: "-> c/d"}, (f"make c/d/{last}",), name)
        turned = f"make e/{last}; rm {folder}; ln -s e {folder}"
        yield f"{name} by a turned link", Attempt({"c/x": "", folder: "-> c"}, (turned,), name)
    for name in (".envrc", ".npmrc", ".vscode", ".netrc"):
        yield f"{name}, a dangling link", Attempt({name: "-> s/file"}, ("make s/file",), name)


ATTEMPTS: Final = dict(_attempts())


async def run(tier: str, every: int = 1) -> list[Outcome]:
    outcomes = []
    with home(tier) as ground:
        project = ground.home / "project"
        for name, attempt in list(ATTEMPTS.items())[::every]:
            ground.clear()
            ground.make(
                {"project/src/main.py": "x", **{f"project/{path}": text for path, text in attempt.files.items()}}
            )
            await ground.act(project, [f"{_MAKE}{step}" for step in attempt.steps])
            outcomes.append(_outcome(name, project / attempt.path))
        for name, special in _SPECIAL.items():
            ground.clear()
            ground.make({"project/src/main.py": "x", ".config/lyra/": ""})
            await special(ground, project, tier)
            outcomes.append(_outcome(name, project / "p/q/r/.envrc"))
    return outcomes


def _outcome(name: str, path: Path) -> Outcome:
    return Outcome(f"afterwards, {name}", f"{path.name} was left" if path.exists() else "")


async def _heap(ground: Ground, project: Path, _tier: str) -> None:
    """More files than are searched before a command."""
    most = protected.SANDBOX_SCAN_ENTRIES_MAX  # type: ignore[attr-defined]  # which a test may lower
    folders = most // 2_000 + 5
    script = f"make p/q/r/.envrc; for i in $(seq {folders}); do mkdir d$i; (cd d$i; seq 1999 | xargs touch); done"
    await ground.sandbox.run(["bash", "-c", _MAKE + script], Profile(str(project), limits=_LIMITS))


async def _beside(ground: Ground, project: Path, _tier: str) -> None:
    """A job in the background makes it, and another command ends."""
    profile = Profile(str(project), limits=_LIMITS)
    job = await ground.sandbox.start(["bash", "-c", f"{_MAKE}make p/q/r/.envrc; echo up; sleep 60"], profile)
    while not job.output.total_bytes:  # noqa: ASYNC110 - the job has no event for its output
        await asyncio.sleep(0.01)
    await ground.sandbox.run(["true"], profile)
    os.kill(job.pid, 0)  # it still runs
    was_left = (project / "p/q/r/.envrc").exists()
    job.kill()
    await job.wait()
    if was_left:
        (project / "p/q/r/.envrc").write_text("evil")


async def _killed(ground: Ground, project: Path, tier: str) -> None:
    """Lyra is killed while the command runs, and started again."""
    words = [sys.executable, "-c", _KILLED, tier, str(project), f"{_MAKE}make p/q/r/.envrc"]
    env = {**os.environ, "PYTHONPATH": str(Path(str(lyra.__file__)).parents[1])}
    process = await asyncio.to_thread(subprocess.Popen, words, env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    await asyncio.to_thread(process.stdout.readline)
    process.kill()
    await asyncio.to_thread(process.communicate)
    await ground.command(project, "true")


_SPECIAL: Final = {"behind a heap of files": _heap, "beside a command": _beside, "after the death of Lyra": _killed}
