"""Attempts to leave a file or folder of a name that a program of the user obeys: every name of the table, in many ways.

One run of a way makes all names at once, each in a folder of its own, so that no name stands for another.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from lyra.sandbox.protection.protected_names import IN_HOME, OBEYED_KEYS, READ_ONLY
from verify.attacks.obeyed.ground import PYTHON, Ground, Outcome, Write, home

__all__ = ["WAYS", "run"]

# Python code that makes one name. `n` is its path in a new folder `d`, `above` the folder that it lies in.
WAYS: Final[dict[str, str]] = {
    "written": "write(n)",
    "a folder": "os.mkdir(n); write(n + '/config')",
    "renamed": "write(d + '/x'); os.rename(d + '/x', n)",
    "a renamed folder": "os.mkdir(d + '/x'); write(d + '/x/c'); os.rename(d + '/x', n)",
    "moved with its folder": "write(n); os.rename(d, d + 'x'); os.rename(d + 'x', d)",
    "a symlink": "write(d + '/x'); os.symlink(os.path.abspath(d + '/x'), n)",
    "a hard link": "write(d + '/x'); os.link(d + '/x', n)",
    "in a folder shut to writing": "write(n); os.chmod(above, 0o555); os.chmod(d, 0o555)",
    "in a folder that is shut": "write(n); os.chmod(above, 0); os.chmod(d, 0)",
    "in a linked folder": "os.rename(above, d + 'y'); write(d + 'y/' + os.path.basename(n)); os.symlink(os.path.abspath(d + 'y'), above)",
    "in a folder in a folder": "write(n); os.mkdir(d + 'x'); os.rename(d, d + 'x/y'); os.rename(d + 'x', d)",
}
_PROGRAM: Final = """
import os, sys
def write(path):
    with open(path, 'w') as file: file.write('evil')
for number, name in enumerate(open('names').read().split(chr(10)), start=1):
    d = f'd{number}'
    n = f'{d}/{name}'
    above = os.path.dirname(n)
    try:
        os.makedirs(above)
        {way}
    except OSError as error:
        print(name, error)
"""


async def run(tier: str, every: int = 1) -> list[Outcome]:
    outcomes = []
    plain = [name.replace("*", "x") for name in (*READ_ONLY, *OBEYED_KEYS)]
    ways = list(WAYS)[::every]
    with home(tier) as ground:
        project = ground.home / "project"
        for way in ways:
            ground.clear()
            ground.make({"project/plain": "x", "project/names": "\n".join(plain)})
            (project / "make.py").write_text(_PROGRAM.replace("{way}", WAYS[way]))
            await ground.command(project, f"{PYTHON} -IS make.py")
            deep = "y/" if way == "in a folder in a folder" else ""
            for number, name in enumerate(plain, start=1):
                effect = _left(project / f"d{number}/{deep}{name}")
                outcomes.append(Outcome(f"names, {name}, {way}", effect))
        outcomes += _writes(ground, project, plain[::every])
        outcomes += await _at_home(ground)
    return outcomes


def _writes(ground: Ground, project: Path, names: list[str]) -> list[Outcome]:
    ground.clear()
    ground.make({"project/plain": "x"})
    outcomes = []
    for name in names:
        for path in (name, f"src/{name}", f"{name}/file", name.upper()):
            ground.write(project, Write(path))
            outcomes.append(Outcome(f"names, Write({path})", _left(project / path)))
    return outcomes


async def _at_home(ground: Ground) -> list[Outcome]:
    """Folders of programs and settings in a home folder that is the workspace: new ones, and files in old ones."""
    outcomes = []
    for exists in (False, True):
        ground.clear()
        ground.make({f"{name}/old": "x" for name in IN_HOME} if exists else {"plain": "x"})
        names = " ".join(f'"{name}"' for name in IN_HOME)
        await ground.command(ground.home, f"for n in {names}; do mkdir -p $n; echo evil > $n/new; done")
        for name in IN_HOME:
            ground.write(ground.home, Write(f"{name}/written"))
            left = [file for file in ("new", "written") if (ground.home / name / file).exists()]
            outcomes.append(Outcome(f"names, {name} in the home folder", f"{left} were left" if left else ""))
    return outcomes


def _left(path: Path) -> str:
    if not os.path.lexists(path):
        return ""
    if path.is_dir() and not path.is_symlink() and not os.listdir(path):
        return ""  # an empty folder is no order to any program
    return f"{path.name} was left"
