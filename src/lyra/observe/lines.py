"""JSON lines: a record a line, appended to a file as it happens.

By itself it writes model calls, each line exactly the fields of the record. With `kinds` it writes Events of those
kinds (`"*"` stands for all), each line a whole Event. Known keys, and texts in the form of a key, are redacted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from lyra.core.codec import to_plain
from lyra.core.event import KINDS, Event
from lyra.core.secrets.redact import redact, redact_data
from lyra.errors import ConfigError

_encode = msgspec.json.Encoder(enc_hook=to_plain).encode


def _no_secrets() -> tuple[str, ...]:
    return ()


class JsonLines:
    """A listener that appends to a file. `secrets` gives texts to redact besides those in the form of a key."""

    __slots__ = ("_file", "_kinds", "_secrets", "path")

    def __init__(
        self,
        path: str | Path,
        *,
        kinds: Iterable[str] | None = None,
        secrets: Callable[[], Iterable[Any]] = _no_secrets,
    ) -> None:
        self.path = Path(path)
        self._kinds = None if kinds is None else _known(kinds)
        self._secrets = secrets
        try:
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror or error}") from None

    @property
    def kinds(self) -> frozenset[str] | None:
        """The kinds of Event that it subscribes to; None is all."""
        return frozenset({"model.called"}) if self._kinds is None else self._kinds or None

    def __call__(self, event: Event) -> None:
        if self._kinds is None:
            if event.kind == "model.called":
                self._write(redact(_encode(event.data).decode(), tuple(self._secrets())).encode())
        elif not self._kinds or event.kind in self._kinds:
            plain = msgspec.json.decode(event.to_json())
            self._write(_encode(redact_data(plain, tuple(self._secrets()))))

    def _write(self, line: bytes) -> None:
        if not self._file.closed:
            self._file.write(line + b"\n")

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    async def close(self) -> None:
        self._file.close()


def _known(kinds: Iterable[str]) -> frozenset[str]:
    wanted = frozenset((kinds,) if isinstance(kinds, str) else kinds)
    if "*" in wanted:
        return frozenset()
    for kind in wanted - KINDS.keys():
        raise ConfigError(f"there are no events of kind {kind!r}", hint="lyra.core.event.KINDS lists them", key=kind)
    return wanted
