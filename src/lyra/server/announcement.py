"""Where the running server of a store is reached: a file in the user's data folder, by the hash of the store's name.

`lyra serve` writes it when it listens and removes it when it stops, so that commands which name a store (`lyra keys`)
find the server that owns it. It holds an address and no token. One that a killed server left leads nowhere, and is
passed over.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from lyra.config.files import alone, write_private
from lyra.core.user_folders import data_folder

_FOLDER: Final = "servers"
_URL_CHARS_MAX: Final = 500


def _file(target: str, env: Mapping[str, str]) -> Path:
    path = target.removeprefix("sqlite://")
    name = target if target == "memory" or "://" in path else f"sqlite://{os.path.realpath(path)}"
    return data_folder(env) / _FOLDER / hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def announce(target: str, url: str, env: Mapping[str, str] = os.environ) -> None:
    """Say that the server of this store is at this URL."""
    path = _file(target, env)
    with suppress(OSError), alone(path):  # without the file, commands need the server's address
        write_private(path, url.encode())


def withdraw(target: str, url: str, env: Mapping[str, str] = os.environ) -> None:
    """Take it back, unless another server has said so since."""
    with suppress(OSError):
        path = _file(target, env)
        if path.read_bytes() == url.encode():
            path.unlink()


def read_announcement(target: str, env: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the server of this store; "" where none has said so."""
    return _url(_file(target, env))


def all_announced(env: Mapping[str, str] = os.environ) -> list[str]:
    """Return the URLs of all servers that have said so, of any store; some may be gone."""
    try:
        files = sorted((data_folder(env) / _FOLDER).iterdir())
    except OSError:
        return []
    return list(dict.fromkeys(filter(None, map(_url, files))))


def _url(path: Path) -> str:
    try:
        url = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return url if url.startswith(("http://", "https://")) and len(url) <= _URL_CHARS_MAX else ""
