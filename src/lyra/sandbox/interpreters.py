"""Where the interpreter of a project's Python environment lies, so that a command can run it.

The interpreter of an environment is a link to a Python that is installed elsewhere (pyenv, uv, conda), and
`pyvenv.cfg` names its folder. A command may write both, so what they name is checked: only the program and the library
folder of a Python installation become visible, read-only, and nothing else beside them. Where the links lead through
other links, each place on the way shows the same folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from lyra.sandbox.real_paths import without_links

_PROGRAM: Final = re.compile(r"python(\d+(\.\d+)?t?)?")
_LIBRARY: Final = re.compile(r"python3\.\d+t?")
_LINKS_MAX: Final = 40
_NOT_PLACES: Final = ("/proc", "/sys", "/dev", "/run")  # nothing can be shown there
_CONFIG_BYTES_MAX: Final = 65_536


def interpreter_mounts(environments: Iterable[str], visible: Sequence[str]) -> list[tuple[str, str]]:
    """What a sandbox has to show so that the interpreters of these environments start: pairs of a real path and the
    path at which it is looked for. Paths inside the folders of `visible` are there already."""
    known = (*visible, *_NOT_PLACES)
    places = [place for environment in environments for program in _programs(environment) for place in _way(program)]
    pairs = {pair for place in dict.fromkeys(places) for pair in _parts(place)}
    return sorted(pair for pair in pairs if not any(_inside(pair[1], root) for root in known))


def _programs(environment: str) -> Iterator[str]:
    """The interpreter of an environment, and that of the installation which its settings name."""
    yield f"{environment}/bin/python"
    try:
        fd = os.open(f"{environment}/pyvenv.cfg", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, encoding="utf-8", errors="replace") as file:
            text = file.read(_CONFIG_BYTES_MAX)
    except OSError:
        return
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key.strip().lower() == "home" and value.strip().startswith("/") and "\0" not in value:
            yield os.path.normpath(f"{value.strip()}/python3")


def _way(program: str) -> Iterator[str]:
    """Each place of the program from link to link, the real one last. Links of folders are not followed on their own:
    the folder is shown where they lead and where they are named."""
    for _ in range(_LINKS_MAX):
        yield program
        try:
            target = os.readlink(program)
        except OSError:
            break
        program = os.path.normpath(os.path.join(os.path.dirname(program), target))
    yield without_links(program)


def _parts(program: str) -> Iterator[tuple[str, str]]:
    """The programs and libraries of the installation that a program belongs to, if it belongs to one."""
    prefix, real = os.path.dirname(os.path.dirname(program)), without_links(program)
    installation = os.path.dirname(os.path.dirname(real))
    if not _PROGRAM.fullmatch(os.path.basename(real)) or without_links(prefix) != installation:
        return
    libraries = [name for name in _names(f"{installation}/lib") if _LIBRARY.fullmatch(name)]
    libraries = [name for name in libraries if os.path.isfile(f"{installation}/lib/{name}/os.py")]
    if not libraries or not os.path.isfile(real):
        return
    for name in _names(f"{installation}/bin"):
        if _PROGRAM.fullmatch(name) and os.path.isfile(f"{installation}/bin/{name}"):
            yield without_links(f"{installation}/bin/{name}"), f"{prefix}/bin/{name}"
    names = [""]
    if _inside(os.path.expanduser("~"), installation):  # the user's own `lib` may hold other things
        names = [*libraries, *(name for name in _names(f"{installation}/lib") if name.startswith("libpython"))]
    for name in names:
        yield f"{installation}/lib/{name}".rstrip("/"), f"{prefix}/lib/{name}".rstrip("/")


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
