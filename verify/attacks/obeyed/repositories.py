"""Attempts to plant a git repository that the user's next `git status` obeys.

The judge is a real git: after the attempt it runs `git status` in every folder of the workspace, as the user would. The
planted settings name a program (`core.fsmonitor`), which makes a mark outside the workspace.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from verify.attacks.obeyed.ground import Ground, Outcome, Step, Write, home

__all__ = ["run"]

_CONFIG: Final = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {worktree}\n\tfsmonitor = touch {mark}; false\n"
_BARE: Final = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tfsmonitor = touch {mark}; false\n"
_HEAD: Final = "ref: refs/heads/main\n"
# Shell functions: `part FOLDER NAME` makes one part of a repository, `whole FOLDER` all of them.
_FUNCTIONS: Final = """
part() {{ mkdir -p "$1"; case $2 in
  HEAD) echo 'ref: refs/heads/main' > "$1/HEAD";;
  config) printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = %s\\n\\tfsmonitor = touch {mark}; false\\n' "${{3:-.}}" > "$1/config";;
  *) mkdir -p "$1/$2";; esac; }}
whole() {{ for name in config objects refs HEAD; do part "$1" $name "$2"; done; }}
"""
_PARTS: Final = ("HEAD", "objects", "refs", "config")


def _file_parts(folder: str) -> dict[str, Write]:
    """The parts as calls of Write: a folder comes into being with a file in it."""
    return {
        "HEAD": Write(f"{folder}/HEAD", _HEAD),
        "objects": Write(f"{folder}/objects/info/x", ""),
        "refs": Write(f"{folder}/refs/heads/x", ""),
        "config": Write(f"{folder}/config", _CONFIG),
    }


def _orders() -> Iterator[tuple[str, tuple[Step, ...]]]:
    """Each order of the parts: by one command each, by Writes, and by both in turn."""
    for order in itertools.permutations(_PARTS):
        words, parts = ", ".join(order), _file_parts("docs")
        yield f"by Writes: {words}", tuple(parts[name] for name in order)
    for order in (_PARTS, _PARTS[::-1], ("config", "objects", "refs", "HEAD"), ("refs", "HEAD", "config", "objects")):
        words, parts = ", ".join(order), _file_parts("docs")
        yield f"by commands: {words}", tuple(f"part docs {name}" for name in order)
        mixed = [f"part docs {name}" if number % 2 else parts[name] for number, name in enumerate(order)]
        yield f"in turn: {words}", tuple(mixed)


_OTHERS: Final[dict[str, tuple[Step, ...]]] = {
    "at once": ("whole docs",),
    "in the root": ("whole .",),
    "deep": ("whole a/b/c/d/e",),
    "in a new folder": ("whole fresh.git",),
    "in a folder of packages": ("whole venv; whole node_modules; whole __pycache__; whole .tox",),
    "moved into place": ("whole x; mkdir y; mv x y/z",),
    "copied into place": (
        "mkdir x; part x config; part x objects; part x refs",
        "echo 'ref: refs/heads/x' > HEAD",
        "mv HEAD x/",
    ),
    "by tar": ("whole x; tar c x | (mkdir y; cd y; tar x); rm -rf x",),
    "objects and refs are links": (
        "part docs HEAD; part docs config; mkdir o; ln -s ../o docs/objects; ln -s ../o docs/refs",
    ),
    "HEAD is a link": ("part docs config; part docs objects; part docs refs; ln -s refs/heads/main docs/HEAD",),
    "objects and refs are programs": (
        "part docs HEAD; part docs config; : > docs/objects; : > docs/refs; chmod +x docs/*",
    ),
    "a commit as HEAD": ("whole docs; printf '%040d\\n' 0 > docs/HEAD",),
    "with a commondir": ("whole x; mkdir docs2; cp x/HEAD docs2/; echo ../x > docs2/commondir; mv x/HEAD x/H",),
    "with a commondir, by Writes": (
        Write("c/objects/x"),
        Write("c/refs/x"),
        Write("c/config", _CONFIG),
        Write("docs/commondir", "../c\n"),
        Write("docs/HEAD", _HEAD),
    ),
    "a commondir after HEAD": (
        Write("c/objects/x"),
        Write("c/refs/x"),
        Write("c/config", _CONFIG),
        Write("docs/HEAD", _HEAD),
        Write("docs/commondir", "../c\n"),
    ),
    "a bare one": (
        "mkdir -p docs/objects docs/refs; echo 'ref: refs/heads/x' > docs/HEAD; printf '{bare}' > docs/config",
    ),
    "git init --bare": ("git init -q --bare docs; part docs config; git init -q --bare new; part new config ..",),
    "git init": ("git init -q docs; part docs/.git config ..",),
    "a .git folder": ("whole docs/.git ..",),
    "a .git file": ("whole real; mkdir -p sub; echo 'gitdir: ../real' > sub/.git",),
    "a .git link": ("whole real; mkdir -p sub; ln -s ../real sub/.git",),
    "a .git file, by Write": (Write("sub/.git", "gitdir: ../real\n"), "whole real"),
    "a submodule": (
        "whole mods/x; mkdir -p sub; printf '[submodule \"s\"]\\n path = sub\\n' > .gitmodules; echo 'gitdir: ../mods/x' > sub/.git",
    ),
    "a worktree": (
        "whole main.git; mkdir -p main.git/worktrees/w tree; echo '../..' > main.git/worktrees/w/commondir; cp main.git/HEAD main.git/worktrees/w/; echo 'gitdir: ../main.git/worktrees/w' > tree/.git",
    ),
    "the folder shut to writing": ("whole docs; chmod 555 docs",),
    "the folder shut": ("whole docs; chmod 000 docs",),
    "a folder above shut to writing": ("mkdir -p a; whole a/b; chmod 555 a a/b",),
    "in the background": ("whole x; rm x/HEAD; (sleep 0.1; part x HEAD) & sleep 0.2",),
    "put back after it was renamed": (
        "whole docs",
        "for f in docs/HEAD.held-*; do mv $f docs/HEAD; done; part docs HEAD",
    ),
    "an edit of a renamed part": ("whole docs", Write("docs/HEAD", _HEAD)),
    "very many files around it": ("mkdir -p big; (cd big; seq 3000 | xargs touch); whole big",),
    "upper case": ("whole docs; mv docs/objects docs/OBJECTS; mkdir docs/objects",),
    "Write in the root": (
        Write("config", _CONFIG),
        Write("objects/x"),
        Write("refs/x"),
        Write("HEAD", _HEAD),
    ),
    "Write by a link": (
        "mkdir -p docs/objects docs/refs; ln -s docs lnk",
        Write("lnk/config", _CONFIG),
        Write("lnk/HEAD", _HEAD),
    ),
}
# In a workspace that is a repository whose settings name files of the working tree.
_NAMED: Final[dict[str, tuple[Step, ...]]] = {
    "the program that watches files": (
        "mkdir -p tools; printf '#!/bin/sh\\ntouch {mark}\\n' > tools/watch; chmod 755 tools/watch",
    ),
    "the same, by Write": (Write("tools/watch", "#!/bin/sh\ntouch {mark}\n"),),
    "included settings": ("printf '[core]\\n\\tfsmonitor = touch {mark}; false\\n' > shared.gitconfig",),
    "included settings that are missing": (
        "printf '[core]\\n\\tfsmonitor = touch {mark}; false\\n' > later.gitconfig",
    ),
    "the folder of the program moved": (
        "mv tools t2; mkdir tools; printf '#!/bin/sh\\ntouch {mark}\\n' > tools/watch; chmod 755 tools/watch",
    ),
    "a hook in its folder": (
        "mkdir -p hooks; printf '#!/bin/sh\\ntouch {mark}\\n' > hooks/post-index-change; chmod 755 hooks/*",
    ),
}
_NAMING: Final = (
    "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = tools/watch\n\thooksPath = hooks\n"
    "[include]\n\tpath = ../shared.gitconfig\n\tpath = ../later.gitconfig\n"
)


async def run(tier: str, every: int = 1) -> list[Outcome]:
    outcomes = []
    with home(tier) as ground:
        workspace = ground.home / "project"
        for name, steps in (*_orders(), *_OTHERS.items())[::every]:
            ground.clear()
            ground.make({"project/docs/guide.md": "x", "project/src/main.py": "x"})
            outcomes.append(Outcome(f"repositories, {name}", await _try(ground, workspace, steps)))
        for name, steps in list(_NAMED.items())[::every]:
            ground.clear()
            ground.make({"project/src/main.py": "x", "project/shared.gitconfig": "", "project/tools/watch": ""})
            ground.make({"project/hooks/README": "x"})
            (workspace / "tools/watch").chmod(0o755)  # Write keeps the mode of a file
            _git(workspace, "init", "-q")
            (workspace / ".git/config").write_text(_NAMING)
            outcomes.append(Outcome(f"repositories, named by settings: {name}", await _try(ground, workspace, steps)))
    return outcomes


async def _try(ground: Ground, workspace: Path, steps: tuple[Step, ...]) -> str:
    await ground.act(workspace, [_filled(step, ground) for step in steps])
    folders = [workspace, *(path for path in workspace.rglob("*") if path.is_dir() and path.name != ".git")]
    subprocess.run(["chmod", "-R", "u+rwx", str(workspace)], check=False)
    for folder in folders:
        _git(folder, "status", "--short")
        _git(folder, "add", "--refresh", ".")
        if ground.mark.exists():
            return f"git obeyed it in {os.path.relpath(folder, workspace)}"
    return ""


def _git(folder: Path, *words: str) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    subprocess.run(["git", *words], cwd=folder, env=env, check=False, capture_output=True, stdin=subprocess.DEVNULL)


def _filled(step: Step, ground: Ground) -> Step:
    if isinstance(step, Write):
        worktree = "." if not step.path.startswith("c/") else "../docs"
        return step._replace(text=step.text.replace("{mark}", str(ground.mark)).replace("{worktree}", worktree))
    bare = _BARE.replace("\n", "\\n").replace("\t", "\\t").replace("{mark}", str(ground.mark))
    step = step.replace("{bare}", bare).replace("{mark}", str(ground.mark))
    return _FUNCTIONS.format(mark=ground.mark) + step
