"""Approvals of a person: servers that a project names, and the description of each tool when it was first seen.

Kept in the person's own folder (`~/.config/lyra/mcp-approvals.json`, readable only by its owner), never in a project's.
A consent is for a `fingerprint`: another argument, variable or URL needs another one. A pin is the hash of a tool's
description and schema; a tool whose pin differs is withheld until a person agrees to its new description. So is another
tool behind a name that the model and the rules know already: `a_b` where `a.b` was `mcp__server__a_b`. Without a folder
(`Approvals(None)`) everything is remembered for the life of this object only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.config.files import alone, write_private
from lyra.core.user_folders import user_folder
from lyra.errors import ConfigError

FILE_NAME: Final = "mcp-approvals.json"
_FILE_BYTES_MAX: Final = 16 << 20
_PINS_MAX: Final = 1_000  # tools of one server, including those that it no longer offers


class _ApprovalsFile(msgspec.Struct):
    consents: dict[str, str] = {}  # fingerprint: the server's name
    pins: dict[str, dict[str, str]] = {}  # fingerprint: tool: pin
    shown: dict[str, dict[str, str]] = {}  # fingerprint: name that the model sees: tool


class Approvals:
    """The file is read again for every query, because another process may have changed it."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._path = None if folder is None else Path(folder, FILE_NAME)
        self._memory = _ApprovalsFile()

    @classmethod
    def of_user(cls, env: Mapping[str, str] | None = None) -> Approvals:
        return cls(user_folder(os.environ if env is None else env))

    def consented(self, fingerprint: str) -> bool:
        return fingerprint in self._read().consents

    def consent(self, fingerprint: str, name: str) -> None:
        with self._change() as kept:
            kept.consents[fingerprint] = name

    def forget(self, fingerprint: str) -> bool:
        """Remove a consent and its pins; True if there were any."""
        with self._change() as kept:
            had = kept.consents.pop(fingerprint, None), kept.pins.pop(fingerprint, None)
            kept.shown.pop(fingerprint, None)
        return had != (None, None)

    def changed(self, fingerprint: str, pins: Mapping[str, str], names: Mapping[str, str] | None = None) -> set[str]:
        """Which of these tools have changed their description, or use the name of another one (`names`: own name → name
        in Lyra). A tool that is seen for the first time is pinned.

        Beyond `_PINS_MAX` tools of a server new ones count as changed.
        """
        kept = self._read()
        known_pins, shown = kept.pins.get(fingerprint, {}), kept.shown.get(fingerprint, {})
        tools = {name: tool for tool, name in (names or {}).items()}
        new = not pins.keys() <= known_pins.keys() and len(known_pins) < _PINS_MAX
        if new or (not tools.keys() <= shown.keys() and len(shown) < _PINS_MAX):
            with self._change() as kept:
                known_pins = _with_new(kept.pins.setdefault(fingerprint, {}), pins)
                shown = _with_new(kept.shown.setdefault(fingerprint, {}), tools)
        others = {tool for name, tool in tools.items() if shown.get(name) != tool}
        return {tool for tool, pin in pins.items() if known_pins.get(tool) != pin or tool in others}

    def accept(self, fingerprint: str, pins: Mapping[str, str], names: Mapping[str, str] | None = None) -> None:
        """Store the pins and names that a person agreed to."""
        with self._change() as kept:
            kept.pins[fingerprint] = _with_agreed(kept.pins.get(fingerprint, {}), pins)
            tools = {name: tool for tool, name in (names or {}).items() if tool in pins}
            kept.shown[fingerprint] = _with_agreed(kept.shown.get(fingerprint, {}), tools)

    def _read(self) -> _ApprovalsFile:
        if self._path is None:
            return self._memory
        try:
            with self._path.open("rb") as file:
                data = file.read(_FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return _ApprovalsFile()
        except OSError as error:
            raise self._unreadable(error.strerror or str(error)) from None
        try:
            return msgspec.json.decode(data, type=_ApprovalsFile)
        except msgspec.MsgspecError as error:
            raise self._unreadable(str(error)) from None

    def _unreadable(self, why: str) -> ConfigError:
        """Return the error of a file that cannot be read: a guess could approve something that the person did not."""
        return ConfigError(f"what you agreed to cannot be read: {why}", place=str(self._path), hint="remove the file")

    @contextlib.contextmanager
    def _change(self) -> Iterator[_ApprovalsFile]:
        if self._path is None:
            yield self._memory
            return
        with alone(self._path):
            kept = self._read()
            yield kept
            data = msgspec.json.format(msgspec.json.encode(kept))
            if len(data) > _FILE_BYTES_MAX:  # a larger file could not be read again
                raise ConfigError(
                    "there is no room for more consents", hint="take some back: lyra mcp revoke", place=str(self._path)
                )
            write_private(self._path, data)


def _with_new(known: dict[str, str], given: Mapping[str, str]) -> dict[str, str]:
    new = [name for name in given if name not in known]
    known.update({name: given[name] for name in new[: _PINS_MAX - len(known)]})
    return known


def _with_agreed(known: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    own = {**known, **given}
    others = [name for name in own if name not in given]
    for name in others[: max(0, len(own) - _PINS_MAX)]:  # the oldest are dropped
        del own[name]
    return own


def pin_of(description: str, schema: Mapping[str, Any]) -> str:
    """Return the hash of a tool's description and schema."""
    encoded = msgspec.json.encode([description, schema], order="deterministic")
    return hashlib.sha256(encoded).hexdigest()
