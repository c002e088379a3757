"""The files that Lyra itself obeys, wherever they lie: rules, answers, consents, keys, stores, tools, its own code.

`find_own_paths` is the one list of them. The sandbox and the file tools protect every path of it, also where a
workspace contains it (an agent that was started in the home folder) and where it does not exist yet. Files of a project
are protected by their names (`lyra.toml`, `.lyra`, `.mcp.json`: `lyra.sandbox.protection`); this module knows the
others. A reader of a file that was named in some other way (a store, a log, a script, a folder of tools) calls
`add_own_path`. `only_adopted_stores` says for a whole OS process which stores are obeyed. `make_folder` makes the
folders of such files, for their owner alone; `has_no_room` tells a full disk from other failures to write one.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, NamedTuple

from lyra.core.user_folders import data_folder, user_folder

MANAGED_FOLDER: Final = "/etc/lyra"  # the machine's own rules, which can only tighten
VARIABLES: Final = (  # those that name a file
    *("LYRA_KERNEL_STORE", "LYRA_AUDIT_FILE", "LYRA_LOG_FILE", "LYRA_SIM_SCRIPT"),
    *("LYRA_SERVER_TLS_CERT", "LYRA_SERVER_TLS_CLIENT_CA", "LYRA_SERVER_TLS_KEY", "LYRA_SERVER_TOKEN_FILE"),
    *("LYRA_CLUSTER_TLS_CA", "LYRA_CLUSTER_TLS_CERT", "LYRA_CLUSTER_TLS_KEY"),
)
PRIVATE_NAME: Final = ".lyra"
_ADDED_MAX: Final = 200  # paths that readers have named; of more the oldest are forgotten
STORE_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")  # SQLite replays what it finds in the last three
FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # disk full, quota used up, file too large
_ROOM_BYTES: Final = 64 << 10  # a disk that does not take this much more is full
_SQLITE_IOERR, _SQLITE_FULL = 10, 13  # SQLite's primary result codes
_added: Final[dict[str, None]] = {}
_opened: Final[dict[str, None]] = {}
_commands: Final[list[None]] = []  # one for each command of Lyra that runs in this OS process


@contextmanager
def only_adopted_stores() -> Iterator[None]:
    """Have kernels in all threads refuse stores that no one has signed, while a command of Lyra runs.

    A command opens the store that lies in the working folder, which may have come with a download. A Python program
    names its store itself, so it may open one of an earlier version, and so may a command in the user's data folder.
    """
    _commands.append(None)
    try:
        yield
    finally:
        _commands.pop()


def obeys_unsigned_store(location: str) -> bool:
    """Return whether a kernel may open a store that no one has signed."""
    own_folder = os.path.realpath(data_folder(os.environ))
    return not _commands or os.path.realpath(location).startswith(os.path.join(own_folder, ""))


class OwnPaths(NamedTuple):
    """Absolute paths of files and folders, existing or not. Their links are not resolved, except those of `code`."""

    hidden: tuple[str, ...]  # folders with keys, tokens, rules and sessions: a command neither reads nor writes them
    read_only: tuple[str, ...]
    code: tuple[str, ...]  # read-only, too: the rules of the machine, the interpreter, Lyra's installation
    home: str  # the user's home folder


def find_own_paths() -> OwnPaths:
    """All that Lyra obeys outside the names of a project's files."""
    read = os.environ.get
    home, folders = read("HOME", ""), (read("XDG_CONFIG_HOME", ""), read("XDG_DATA_HOME", ""))
    named = tuple([read(name, "") for name in VARIABLES])
    return _find_own_paths(home, folders, home or os.path.expanduser("~"), named, tuple(_added))


@lru_cache(maxsize=16)
def _find_own_paths(
    variable: str, folders: tuple[str, str], home: str, named: tuple[str, ...], added: tuple[str, ...]
) -> OwnPaths:
    # Also the usual folders, where a variable names another: a Lyra without that variable uses them.
    env = {"HOME": variable, "XDG_CONFIG_HOME": folders[0], "XDG_DATA_HOME": folders[1]}
    hidden = [user_folder(env) or "", str(data_folder(env))]
    hidden += [f"{home}/.config/lyra", f"{home}/.local/share/lyra"] if os.path.isabs(home) else []
    files = [path for value in named for path in _file_named(value)]
    return OwnPaths(_distinct(hidden), _distinct([*files, *added]), _installation(), home)


def _distinct(paths: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.normpath(path) for path in paths if path))


def _file_named(value: str) -> list[str]:
    """Return the file that a setting names, and those that SQLite keeps beside it; none for a URL or a word."""
    path = value.removeprefix("sqlite://")
    if not path or "://" in path or path == "memory" or path.startswith("env:") or "\0" in path:
        return []
    try:
        whole = os.path.abspath(os.path.expanduser(path))
    except OSError:  # the working folder is gone
        return []
    return [f"{whole}{suffix}" for suffix in STORE_SUFFIXES]


@lru_cache(maxsize=1)
def _installation() -> tuple[str, ...]:
    """Return the folders from which the next start of Lyra takes its code, unless they belong to the system."""
    import site

    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders = [os.path.dirname(os.__file__), os.path.dirname(os.path.realpath(sys.executable))]
    folders += [sys.prefix] if sys.prefix != sys.base_prefix else []  # a virtual environment, as a whole
    folders += [site.getusersitepackages()]
    folders += [package] if "-packages/" in package else []  # else it is a source tree, which people edit
    home = os.path.expanduser("~")
    paths = {path for folder in (*folders, MANAGED_FOLDER) for path in (folder, os.path.realpath(folder))}
    return tuple(path for path in paths if not path.startswith("/usr/") and not f"{home}/".startswith(f"{path}/"))


def is_opened(path: str) -> bool:
    """Return whether this process has opened the file itself: it was named to `add_own_path` with `opened`."""
    return path in _opened


def add_own_path(path: str | os.PathLike[str], *, is_store: bool = False, opened: bool = False) -> None:
    """Protect a file or folder that this process has begun to obey. Of a store also the files beside it."""
    whole = os.path.abspath(path)
    if "\0" in whole:
        return  # no file can have this name
    for suffix in STORE_SUFFIXES if is_store else ("",):
        _keep(_added, f"{whole}{suffix}")
    if opened:
        _keep(_opened, whole)
        _keep(_opened, os.path.realpath(whole))


def _keep(paths: dict[str, None], path: str) -> None:
    paths.pop(path, None)
    paths[path] = None
    if len(paths) > _ADDED_MAX:
        del paths[next(iter(paths))]


def add_own_file(value: str) -> None:
    """Protect the file that a setting names, if it names one: a URL, `memory` and a reference are no files."""
    for path in _file_named(value):
        add_own_path(path)


def make_folder(path: str | os.PathLike[str], *, private: bool = False) -> None:
    """Make a folder and those above it. A `.lyra`, and with `private` the folder and a `lyra` above it, are open to
    their owner alone, whatever the umask. Folders that exist stay as they are."""
    whole = os.path.abspath(path)
    above = os.path.dirname(whole)
    if not os.path.isdir(above):
        make_folder(above, private=private and os.path.basename(above) == "lyra")
    alone = private or os.path.basename(whole) == PRIVATE_NAME
    try:
        os.mkdir(whole, 0o700 if alone else 0o777)
    except FileExistsError:
        if not os.path.isdir(whole):
            raise
        return
    if alone and stat.S_IMODE(os.stat(whole).st_mode) != stat.S_IRWXU:
        os.chmod(whole, stat.S_IRWXU)  # the umask has removed a right of the owner


def has_no_room(error: Exception, path: str | os.PathLike[str]) -> bool:
    """Tell whether writing the file `path` failed for lack of room: the disk is full, the quota is used up, or the file
    has the largest size that it may have."""
    if isinstance(error, OSError):
        return error.errno in FULL_ERRNOS
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    return code == _SQLITE_FULL or (code == _SQLITE_IOERR and not _can_grow(path))


def _can_grow(path: str | os.PathLike[str]) -> bool:
    """Try a file beside `path` that is longer than the files of the database there. SQLite reports a used-up quota and
    a file that is too large as an I/O error without a reason."""
    import tempfile  # at first use: most programs never need it

    files = [name for suffix in STORE_SUFFIXES if os.path.exists(name := f"{os.fspath(path)}{suffix}")]
    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(path))) as probe:
            os.ftruncate(probe.fileno(), max(map(os.path.getsize, files), default=0) + _ROOM_BYTES)
            probe.write(bytes(_ROOM_BYTES))
            probe.flush()
    except OSError as error:
        return error.errno not in FULL_ERRNOS
    return True
