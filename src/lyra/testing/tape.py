"""Tests with real answers, offline: recorded on the first run, replayed on every other.

    with record("tests/cassettes/weather.jsonl", client):
        …                                    # agents of this client answer from the cassette, or go into it

`client` is an LLMClient, whose providers are stood in for while the block runs, or one provider, in whose place the
`with` gives another. The file is written when the block ends well, and only then. `LYRA_RECORD` says what to do:

    (not set)  replay if there is a file, else record
    replay     replay; no file is an error: for continuous integration
    new        replay what was recorded, record what was not
    all        record everything anew

Replaying needs no key and no network. What a cassette holds is `lyra.models.record`'s to say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from lyra.core.checking.check import one_of
from lyra.core.secrets.secret import Secret
from lyra.models.client import LLMClient
from lyra.models.provider import LLMProvider
from lyra.models.record import Cassette, Recorder, Replayer

VARIABLE: Final = "LYRA_RECORD"
MODES: Final[dict[str, str]] = {
    "once": "replay if there is a file, else record",
    "replay": "replay only",
    "new": "replay what was recorded, record what was not",
    "all": "record everything anew",
}
Source = TypeVar("Source", LLMClient, LLMProvider)


@contextmanager
def record(
    path: str | os.PathLike[str],
    source: Source,
    *,
    mode: str = "",
    in_order: bool = False,
    timings: bool = False,
    secrets: Iterable[str | Secret] = (),
) -> Iterator[Source]:
    """`mode` stands in for `LYRA_RECORD`; `in_order` and `timings` are those of a Replayer; `secrets` never appear."""
    tape: _Tape = _Tape(path, mode or os.environ.get(VARIABLE, "") or "once", in_order, timings, tuple(secrets))
    if isinstance(source, LLMProvider):
        tape.source = source
        yield tape.stand_in(source.name, lambda: source)
    else:
        assert isinstance(source, LLMClient)
        tape.source = source
        before, source.stand_in = source.stand_in, tape.stand_in
        try:
            yield source
        finally:
            source.stand_in = before
    tape.save()


class _Tape:
    """One block: the providers that stand in for the real ones, and the cassette they share."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: str,
        in_order: bool,
        timings: bool,
        secrets: tuple[str | Secret, ...],
    ) -> None:
        one_of(mode, MODES, VARIABLE)
        there = Path(path).exists()
        self._replays = mode == "replay" or (there and mode != "all")
        self._records = mode in ("new", "all") or (mode == "once" and not there)
        self._cassette = Cassette.load(path) if self._replays else Cassette(path)
        self._in_order = in_order
        self._timings = timings
        self._secrets = secrets
        self.source: LLMClient | LLMProvider | None = None
        self._providers: dict[str, LLMProvider] = {}

    def secrets(self) -> tuple[str | Secret, ...]:
        """Return the keys that must not be in the file, also those of providers that are not called.

        Recording and replaying use the same list; otherwise a request would not be found again.
        """
        if isinstance(self.source, LLMClient):
            return (*self._secrets, *self.source.all_secrets())
        return self._secrets if self.source is None else (*self._secrets, *self.source.secrets())

    def stand_in(self, name: str, real: Callable[[], LLMProvider]) -> LLMProvider:
        provider = self._providers.get(name)
        if provider is None:
            provider = self._providers[name] = self._make(name, real)
        return provider

    def _make(self, name: str, real: Callable[[], LLMProvider]) -> LLMProvider:
        recorder = Recorder(real(), self._cassette, secrets=self.secrets, name=name) if self._records else None
        if not self._replays:
            assert recorder is not None
            return recorder
        return Replayer(
            self._cassette,
            name,
            in_order=self._in_order,
            timings=self._timings,
            secrets=self.secrets,
            otherwise=recorder,
        )

    def save(self) -> None:
        if self._records:
            self._cassette.save()
