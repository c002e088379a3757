"""The user's key for signing stores: 32 random bytes in the file "store.key" in the folder of the user's own settings.

It is made once, when a store is first opened, with mode 0600; commands of agents cannot read it, because the sandbox
hides files of that name. On another machine, or for another user, the key is another one: to use one store from several
machines, copy the file. Where there is no such folder, or nothing can be written there, there is no key, and stores are
not signed. The key is given to nothing but `Signer` and is never shown.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from lyra.core.ids import random_key
from lyra.core.user_folders import user_folder
from lyra.errors import ConfigError
from lyra.store.signature import Signer

FILE_NAME: Final = "store.key"
_HEX_DIGITS: Final = 64


def key_file() -> Path | None:
    """Where the key is, or would be; None for a user without a folder of settings."""
    folder = user_folder(os.environ)
    return None if folder is None else Path(folder, FILE_NAME)


def own_signer(*, make: bool = True) -> Signer | None:
    """The user's key, which is made where there is none yet; None where there is none and none can be made."""
    path = key_file()
    if path is None:
        return None
    key = _read(path)
    if key is None and make:
        with suppress(OSError):  # a folder that cannot be written: there is no key
            _make(path)
        key = _read(path)
    return None if key is None else Signer(key)


def _read(path: Path) -> bytes | None:
    """The key in the file; None where there is no file that this user may read."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_HEX_DIGITS + 2).strip()
    except OSError:
        return None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"{path} may be read or written by other users", hint=f"make it private: chmod 600 {path}", key=str(path)
        )
    try:
        key = bytes.fromhex(text.decode("ascii")) if len(text) == _HEX_DIGITS else b""
    except ValueError:
        key = b""
    if not key:
        raise ConfigError(
            f"{path} holds no key of {_HEX_DIGITS} hexadecimal digits",
            hint="restore it from a backup; without the file a new key is made, and stores have to be adopted again",
            key=str(path),
        )
    return key


def _make(path: Path) -> None:
    """Put a new key in its place, complete or not at all, unless another process has put one there first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(random_key().hex().encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)
