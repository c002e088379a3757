"""Attempts to write files that are obeyed though their names are ordinary: git's settings name them, or a link does.

Each is tried by a command and by the tools Read and Write. What counts is the file afterwards.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

from verify.attacks.obeyed.ground import Ground, Outcome, Write, home

__all__ = ["ATTEMPTS", "run"]


class Attempt(NamedTuple):
    """A file that is written from a workspace; both are paths in the home folder. `config` are the settings of the
    repository in `project`."""

    target: str
    config: str = ""
    files: Mapping[str, str] = {}
    workspace: str = "project"
    repository: bool = True
    path: str = ""  # a folder of the search path; with a dot before it, it is relative, and else in the home folder
    first: str = ""  # what the command does before it writes
    obeyed: str = ""  # the path that a program reads, where it is another one than the target


def _include(value: str) -> Attempt:
    return Attempt("project/shared", f"[include]\n\tpath = {value}\n", {"project/shared": ""})


def _program(key: str, value: str = "tools/watch", target: str = "project/tools/watch") -> Attempt:
    section, _, name = key.rpartition(".")
    section, _, inner = section.partition(".")
    header = f'[{section} "{inner}"]' if inner else f"[{section}]"
    return Attempt(target, f"{header}\n\t{name} = {value}\n", {target: "#!/bin/sh\n"})


_KEYS: Final = (
    *("core.fsmonitor", "filter.x.clean", "filter.x.smudge", "filter.x.process", "diff.external", "diff.x.command"),
    *("diff.x.textconv", "merge.x.driver", "core.sshCommand", "core.editor", "core.pager", "pager.log", "gpg.program"),
    *("gpg.ssh.program", "credential.helper", "sequence.editor", "difftool.x.cmd", "mergetool.x.cmd", "core.askPass"),
    *("interactive.diffFilter", "trailer.x.command", "tar.x.command", "uploadpack.packObjectsHook"),
)
_LINKS: Final = (".vscode/tasks.json", ".idea/runner.xml", ".husky/pre-commit", ".husky/_/h", ".devcontainer/setup.sh")


def _linked(place: str) -> Attempt:
    up = "../" * place.count("/")
    return Attempt("project/conf/x", "", {f"project/{place}": f"-> {up}conf/x", "project/conf/x": "ours"})


def _on_path(folder: str) -> Attempt:
    path = folder if folder[0] == "." else f"project/{folder}"
    return Attempt(f"project/{folder}/tool", "", {f"project/{folder}/other": "x"}, path=path)


# Each attempt has a file of its own: a path that was protected once stays so for the process.
_ENV: Final = {"project/scripts/env.sh": "ours"}
ATTEMPTS: Final[dict[str, Attempt]] = {
    "an included file": _include("../shared"),
    "a part of the path quoted": _include('../"shared"'),
    "a comment without a blank": _include("../shared;c"),
    "another comment": _include("../shared#c"),
    "a continued line": _include("../\\\nshared"),
    "on the line of its section": Attempt("project/shared", "[include] path = ../shared", {"project/shared": ""}),
    "in capitals": Attempt("project/shared", "[InClude]\n\tPATH=../shared\n", {"project/shared": ""}),
    "under a condition": Attempt(
        "project/shared", '[includeIf "onbranch:main"]\n\tpath = ../shared\n', {"project/shared": ""}
    ),
    "included by an included file": Attempt(
        "project/b", "[include]\n\tpath = ../a\n", {"project/a": "[include]\npath = b\n", "project/b": ""}
    ),
    "an included file that is missing": Attempt("project/later", "[include]\n\tpath = ../later\n"),
    "an included file by a link": Attempt(
        "project/real", "[include]\n\tpath = ../a\n", {"project/a": "-> real", "project/real": ""}
    ),
    **{f"the program of {key}": _program(key) for key in _KEYS},
    "an alias": _program("alias.x", "!sh tools/watch --now"),
    "an alias that enters a folder": _program("alias.x", "!cd tools && ./watch"),
    "an alias with an option": _program("alias.x", "-c core.pager=tools/watch log"),
    "a program after a variable": _program("core.pager", "LESS=x $HOME/project/tools/watch"),
    "a program after a command": _program("filter.x.clean", '\\"$(git rev-parse --show-toplevel)/tools/watch\\" %f'),
    "a script of an interpreter": _program("filter.x.clean", "python3 -u tools/clean.py", "project/tools/clean.py"),
    "a hook": Attempt("project/hooks/pre-commit", "[core]\nhooksPath = hooks\n", {"project/hooks/pre-commit": "x"}),
    "a hook that is missing": Attempt("project/hooks/pre-push", "[core]\nhooksPath = hooks\n", {"project/hooks/x": ""}),
    "a hook in the root": Attempt("project/pre-commit", "[core]\nhooksPath = .\n", {"project/pre-commit": "x"}),
    "a hook that is a link": Attempt(
        "project/scripts/hook",
        "",
        {"project/scripts/hook": "x", "project/.git/hooks/pre-commit": "-> ../../scripts/hook"},
    ),
    "of the repository above": Attempt(
        "project/sub/shared", "[include]\n\tpath = ../sub/shared\n", {"project/sub/shared": ""}, "project/sub"
    ),
    "included by the user's settings": Attempt(
        "dot", "", {".gitconfig": "[include]\n\tpath = dot\n", "dot": ""}, ".", repository=False
    ),
    "a program of the user's settings": Attempt(
        "tools/watch",
        "",
        {".gitconfig": "[core]\nfsmonitor=~/tools/watch\n", "tools/watch": "x"},
        ".",
        repository=False,
    ),
    "the user's settings, from a project": Attempt(
        "project/dot", "", {".gitconfig": "[include]\n\tpath = ~/project/dot\n", "project/dot": ""}, repository=False
    ),
    "the target of a link": Attempt("project/scripts/env.sh", "", {"project/.envrc": "-> scripts/env.sh", **_ENV}),
    "the target of a link to a folder": Attempt(
        "project/conf/vs/tasks.json", "", {"project/.vscode": "-> conf/vs", "project/conf/vs/tasks.json": "ours"}
    ),
    "a link in a protected folder": Attempt(
        "project/conf/tasks.json", "", {"project/.vscode/tasks.json": "-> ../conf/tasks.json", "project/conf/x": ""}
    ),
    **{f"a link in {place}": _linked(place) for place in _LINKS},
    **{f"a program in {folder} of the search path": _on_path(folder) for folder in ("bin", "tools/bin", "./scripts")},
    "a program in a missing folder of the search path": Attempt("project/bin/tool", path="project/bin"),
    "a folder of the search path by a link": Attempt(
        "project/bin/tool", "", {"project/bin/tool": "ours", "programs": "-> project/bin"}, path="programs"
    ),
    "a program in the home folder": Attempt("programs/tool", "", {"programs/x": ""}, ".", path="programs"),
    "a folder of the search path behind a link and dots": Attempt(
        "project/deep/bin/tool",
        "",
        {"project/deep/bin/x": "", "project/deep/in/x": "", "project/cur": "-> deep/in"},
        path="project/cur/../bin",
    ),
    "a missing folder of the search path by a new link": Attempt(
        "project/other/bin/tool",
        "",
        {"project/d/x": ""},
        path="project/d/y/bin",
        first="ln -s ../other d/y",
        obeyed="project/d/y/bin/tool",
    ),
    "a folder of the search path as an environment": Attempt(
        "project/tools/pyvenv.cfg", "", {"project/tools/bin/x": ""}, path="project/tools/bin"
    ),
    "a chain of links": Attempt(
        "project/a",
        "",
        {"project/conf/x": "ours", "project/a": "-> conf/x", "project/.husky/pre-commit": "-> ../a"},
        first="rm a",
        obeyed="project/.husky/pre-commit",
    ),
    "a link in the middle": Attempt(
        "project/s/x",
        "",
        {"project/conf/x": "ours", "project/s": "-> conf", "project/.husky/pre-commit": "-> ../s/x"},
        first="rm s",
        obeyed="project/.husky/pre-commit",
    ),
    "a link in a linked folder": Attempt(
        "project/one/x",
        "",
        {"project/one/x": "ours", "project/t/pre-commit": "-> ../one/x", "project/.husky": "-> t"},
    ),
    "a link in a folder that a link leads to": Attempt(
        "project/two/x",
        "",
        {"project/two/x": "ours", "project/t/x": "-> ../two/x", "project/.vscode/t": "-> ../t"},
    ),
    "a link named like an environment": Attempt(
        "project/three/x", "", {"project/three/x": "ours", "project/.vscode/venv": "-> ../three"}
    ),
    "a missing target by a new link": Attempt(
        "project/other/x",
        "",
        {"project/.husky/pre-commit": "-> ../s/x"},
        first="ln -s other s",
        obeyed="project/.husky/pre-commit",
    ),
}
# The sandbox's own search answers for these.
BY_WRITE: Final[dict[str, Attempt]] = {
    "the missing target of a link": Attempt("project/scripts/env.sh", "", {"project/.envrc": "-> scripts/env.sh"}),
    "a name in a linked folder": Attempt(
        "project/tools/cargo/config.toml", "", {"project/.cargo": "-> tools/cargo", "project/tools/cargo/x": ""}
    ),
}


async def run(tier: str, every: int = 1) -> list[Outcome]:
    outcomes = []
    with home(tier) as ground:
        for name, attempt in list(ATTEMPTS.items())[::every]:
            outcomes.append(Outcome(f"named files, {name}, by a command", await _try(ground, attempt, by_write=False)))
        for name, attempt in list({**ATTEMPTS, **BY_WRITE}.items())[::every]:
            outcomes.append(Outcome(f"named files, {name}, by Write", await _try(ground, attempt, by_write=True)))
    return outcomes


async def _try(ground: Ground, attempt: Attempt, *, by_write: bool) -> str:
    path = attempt.path if attempt.path[:1] == "." else f"{ground.home}/{attempt.path}"
    with mock.patch.dict(os.environ, {"PATH": f"{path}:{os.environ['PATH']}"} if attempt.path else {}):
        return await _act(ground, attempt, by_write=by_write)


async def _act(ground: Ground, attempt: Attempt, *, by_write: bool) -> str:
    ground.clear()
    (ground.home / "project").mkdir()
    if attempt.repository:
        env = {"PATH": os.environ["PATH"], "HOME": str(ground.root)}
        subprocess.run(["git", "init", "-q"], cwd=ground.home / "project", env=env, check=True)
        with (ground.home / "project/.git/config").open("a") as file:
            file.write(attempt.config)
    ground.make(attempt.files)
    target, workspace = ground.home / attempt.target, (ground.home / attempt.workspace).resolve()
    obeyed = ground.home / (attempt.obeyed or attempt.target)
    if target.exists():
        target.chmod(0o755)
    before = _text(obeyed)
    path = os.path.relpath(target, workspace)
    if by_write:
        ground.write(workspace, Write(path))
    else:
        above = shlex.quote(os.path.dirname(path) or ".")
        write = f"mkdir -p {above}; echo evil > {path}; rm -f {path}; echo evil > {path}"
        await ground.command(workspace, f"{attempt.first}; {write}" if attempt.first else write)
    return "" if _text(obeyed) == before else f"{attempt.obeyed or attempt.target} was written"


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
