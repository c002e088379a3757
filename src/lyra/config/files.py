"""Reading a settings file: its place, its text, the line of each key in it; and files that only their owner reads.

Anything but a small UTF-8 TOML file is a `ConfigError` with its place. This module does not know what the keys mean.
`write_private` replaces a file in one step; `alone` holds a lock beside it, so that two processes that change it at the
same time both succeed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lyra.core.own_files import make_folder
from lyra.errors import ConfigError

FILE_NAME: Final = "lyra.toml"
MANAGED_FILE: Final = "/etc/lyra/lyra.toml"  # the machine's: it can only tighten
FILE_BYTES_MAX: Final = 1024 * 1024  # a settings file this large is something else by mistake


def folder(cwd: str | os.PathLike[str] | None) -> str:
    try:
        return os.path.abspath(os.getcwd() if cwd is None else cwd)
    except FileNotFoundError:
        raise ConfigError("the working folder no longer exists", hint="change to a folder that does") from None


def is_same_file(path: str, other: str | None) -> bool:
    return other is not None and os.path.exists(other) and os.path.exists(path) and os.path.samefile(path, other)


def project_file(cwd: str, user: str | None) -> str | None:
    """Return the nearest `lyra.toml` from a folder up; the user's own file and the machine's are no project's."""
    while True:
        path = os.path.join(cwd, FILE_NAME)
        if os.path.lexists(path) and not is_same_file(path, user) and path != MANAGED_FILE:
            return path
        above = os.path.dirname(cwd)
        if above == cwd:
            return None
        cwd = above


def is_own(path: str, folder: str) -> bool:
    """Return whether a file above a folder belongs to the user, to the folder's owner or to root. In a folder such as
    /tmp other users can put a `lyra.toml` above."""
    try:
        return os.lstat(path).st_uid in (os.geteuid(), os.stat(folder).st_uid, 0)
    except OSError:
        return False


def is_inside(path: str, root: str) -> bool:
    """Return whether a path lies in a folder, or is it, with the links of both resolved."""
    real_root = os.path.realpath(root)
    real_path = os.path.realpath(os.path.join(root, path))
    return os.path.commonpath((real_root, real_path)) == real_root


def check_no_way_out(path: str, root: str) -> None:
    """Refuse a path that is named inside a folder and leads out of it, through a link."""
    named = os.path.normpath(os.path.join(root, path))
    lies_in = named == root or named.startswith(f"{root.rstrip('/')}/")
    if lies_in and not is_inside(path, root):
        raise ConfigError(
            f"{path} leads out of the project's folder, through a link", hint="name the place itself", place=named
        )


def parse_toml(data: bytes, shown: str) -> tuple[dict[str, Any], dict[tuple[str, ...], int]]:
    """Return the document and the line of each key; anything but small UTF-8 TOML is a ConfigError."""
    import tomllib
    from decimal import Decimal

    from lyra.core.checking.document import DEPTH_MAX, TooDeep, key_lines

    text = _text(data, shown)
    try:
        lines = key_lines(text)
        return tomllib.loads(text, parse_float=Decimal), lines
    except TooDeep as deep:
        raise ConfigError(f"nested more than {DEPTH_MAX} deep", place=f"{shown}:{deep.line}") from None
    except tomllib.TOMLDecodeError as error:
        message, line, column = _toml_mistake(str(error), text)
        raise ConfigError(message, place=f"{shown}:{line}:{column}", line=line, column=column) from None
    except (ValueError, ArithmeticError):  # a number too long for Python, or too large for a Decimal
        raise ConfigError("it holds a number beyond all bounds", place=shown) from None


def read_bytes(path: str, shown: str) -> bytes | None:
    """Return the content of a small settings file; None where there is no file.

    A broken link, a folder or a pipe is a ConfigError: the path was meant to have settings, which must not be ignored.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}", place=shown) from None
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe could block for ever
            raise ConfigError("it is not a file", place=shown, hint="a text file of settings belongs there")
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        hint = "mend the link or remove it"
        raise ConfigError("it is a link to a file that is not there", place=shown, hint=hint) from None
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}", place=shown) from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"it is larger than {FILE_BYTES_MAX} bytes", place=shown, hint="is it a settings file?")
    return data


def _text(data: bytes, shown: str) -> str:
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("it is not UTF-8", place=f"{shown}:{line}", hint="save it as UTF-8") from None


def _toml_mistake(message: str, text: str) -> tuple[str, int, int]:
    """Return the sentence, line and column of an error of `tomllib`, which has the place inside its sentence."""
    import re

    match = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    sentence = message[: match.start()] if match else message
    if match and match[1]:
        return sentence, int(match[1]), int(match[2])
    before = text.rstrip()
    return sentence, before.count("\n") + 1, len(before) - before.rfind("\n")


def write_private(path: Path, data: bytes) -> None:
    """Write a file atomically, readable only by its owner."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, 0o600)
        file.write(data)
        file.flush()
        os.fsync(fd)
    os.replace(temporary, path)


def keep_word(path: Path, key: str, word: str) -> None:
    """Set `section.name` in a settings file and leave every other line as it is; ConfigError where the file cannot be
    read, or has the key in another form than on a line of its own."""
    import tomllib

    section, _, name = key.partition(".")
    line = f'{name} = "{word}"'
    with alone(path):
        real = os.path.realpath(path)
        text = _text(read_bytes(real, str(path)) or b"", str(path))
        rows = text.removesuffix("\n").split("\n") if text else []
        heads = [number for number, row in enumerate(rows) if row.split("#")[0].strip() == f"[{section}]"]
        if not heads:
            rows += ["", f"[{section}]"] if rows else [f"[{section}]"]
        first = (heads[0] if heads else len(rows) - 1) + 1
        end = next((number for number in range(first, len(rows)) if rows[number].lstrip().startswith("[")), len(rows))
        old = [number for number in range(first, end) if rows[number].partition("=")[0].strip() == name]
        rows[old[0] if old else first : old[0] + 1 if old else first] = [line]
        changed = "\n".join(rows) + "\n"
        try:
            is_kept = tomllib.loads(changed)[section][name] == word
        except (tomllib.TOMLDecodeError, KeyError, TypeError):
            is_kept = False
        if not is_kept:
            raise ConfigError(f"{key} cannot be set there", place=str(path), hint=f"write {line} under [{section}]")
        write_private(Path(real), changed.encode())


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock of a file; makes its folder, which only its owner can enter."""
    make_folder(path.parent, private=True)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
