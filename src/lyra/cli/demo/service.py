"""The flaky service that the demo's team calls: slow, unreliable, and with a memory of the keys it has served.

It keeps a ledger of what it performed, in a file of its own: that is what the demo counts at the end. Its failures
follow from the seed, the page and the try. It closes the team's session after so many pages (`_CUTS`), which crashes
the process that holds it, and performs nothing more until there is a session and an index again. With `hold` it stops
answering after a while, so that the kill meets calls in flight. Knows nothing of kernels and processes.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

import msgspec

from lyra.core.budgets.budget import Usage
from lyra.core.effect import Charged, Effect
from lyra.core.naming import named
from lyra.core.policies.policy import Backoff, Retry

SERVICE: Final = "net.http:reviews.example"
_PAGE_COST: Final = "$0.012"  # the most one page may cost: reserved before the call
_PAGES_BEFORE_HOLD: Final = 13
# When the session is closed, in pages performed so far: once before the kill, twice after it.
_CUTS: Final = {True: (5,), False: (18, 25)}
_STATUS: Final = {429: "too many requests", 503: "service unavailable"}


class Settings(msgspec.Struct):
    """What `lyra demo` tells one kernel."""

    store: str
    ledger: str
    seed: int
    pace: float  # 1.0 as a person likes to watch it, 0.0 without pauses
    hold: bool  # the first of the two kernels: it is going to be killed


@named("lyra:demo.ServiceError")
class ServiceError(Exception):
    """The service said no, with an HTTP status; Lyra's Retry reads `status`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status} {_STATUS[status]}")
        self.status = status


@named("lyra:demo.SessionLost")
class SessionLost(Exception):
    """The service has closed the session."""


class Service:
    """A simulated HTTP service, and the effects that call it."""

    def __init__(self, settings: Settings, tell: Callable[[dict[str, Any]], None]) -> None:
        self.settings = settings
        self._tell = tell
        self._served: dict[str, int] = {}  # key → answer
        self._tries: Counter[str] = Counter()
        self._pages = self._held = 0
        self._cuts = list(_CUTS[settings.hold])
        self._open, self._cut = asyncio.Event(), asyncio.Event()
        self._read_ledger()
        self._pages_before = self._pages
        pace = settings.pace
        policy = {
            "retry": Retry(max_attempts=12, backoff=Backoff(initial_s=0.15 * pace + 0.001, max_s=0.8, jitter=0.3)),
            "timeout_s": 0.8 * pace + 0.1,
        }
        self.review_page = Effect(
            self._review_page,
            name="review_page",
            needs=SERVICE,
            cost=_PAGE_COST,
            idempotent=True,
            policy=policy,
        )
        self.load_rules = Effect(self._load_rules, name="load_rules", needs=SERVICE, idempotent=True)
        self.log_in = Effect(self._log_in, name="log_in", needs=SERVICE, idempotent=True)
        self.open_index = Effect(self._open_index, name="open_index", needs=SERVICE, idempotent=True)
        self.stay = Effect(self._stay, name="stay", needs=SERVICE, idempotent=True)
        self.publish_report = Effect(self._publish_report, name="publish_report", needs=SERVICE)

    # ------------------------------------------------------------ what it can be asked
    async def _review_page(self, file: str, page: int, *, idempotency_key: str) -> Charged:
        key = idempotency_key
        self._tries[key] += 1
        attempt = self._tries[key]
        self._say(key, "calling", page=page, attempt=attempt)
        mood = self._draw("mood", file, page, attempt)
        await self._pause(0.15 + 0.35 * self._draw("time", file, page, attempt))
        if mood < 0.13:
            self._refuse(key, 429)
        if mood < 0.24:
            self._refuse(key, 503)
        if mood < 0.29:
            self._say(key, "silent")
            await asyncio.sleep(3600)  # no answer: the effect's timeout_s ends it
        if key in self._served:
            self._say(key, "known")  # asked before a crash: the same answer, and no second charge
        else:
            await self._maybe_hold(key)
            await self._open.wait()
            self._perform(key, file, page, int(self._draw("findings", file, page) * 4))
            self._page_done()
            await self._maybe_hold(key)
            self._say(key, "ok")
        usd = 6_000 + int(5_000 * self._draw("usd", file, page))
        return Charged(self._served[key], Usage(usd=usd))

    async def _load_rules(self, *, idempotency_key: str) -> int:
        return self._perform(idempotency_key, "rules", 0, 12)

    async def _log_in(self, *, idempotency_key: str) -> None:
        await self._pause(0.6)
        self._perform(idempotency_key, "session", 0, 1)

    async def _open_index(self, *, idempotency_key: str) -> None:
        self._perform(idempotency_key, "index", 0, 1)
        self._open.set()

    async def _stay(self) -> None:
        """Hold the session; ends when the service closes it."""
        await self._cut.wait()
        self._cut.clear()
        raise SessionLost("the session is closed")

    async def _publish_report(self, findings: int, *, idempotency_key: str) -> bool:
        self._say(idempotency_key, "publishing")
        await self._open.wait()
        await self._pause(0.5)
        self._perform(idempotency_key, "report", 0, findings)
        return True

    # ------------------------------------------------------------ how it behaves
    def _refuse(self, key: str, status: int) -> None:
        self._say(key, str(status))
        raise ServiceError(status)

    def _page_done(self) -> None:
        self._pages += 1
        if self._cuts and self._pages >= self._cuts[0]:
            self._cuts.pop(0)
            self._open.clear()
            self._cut.set()

    async def _maybe_hold(self, key: str) -> None:
        """Stop answering, some calls before they are performed and some after: in flight when the kill comes."""
        if self.settings.hold and self._pages - self._pages_before >= _PAGES_BEFORE_HOLD:
            if (key in self._served) != (self._held % 2 == 1):
                return
            self._held += 1
            self._say(key, "held")
            await asyncio.sleep(3600)

    def _perform(self, key: str, what: str, page: int, answer: int) -> int:
        """The act itself, once a key. One write to the ledger, which a SIGKILL of this process cannot take back."""
        if key in self._served:
            return self._served[key]
        line = json.dumps({"key": key, "what": what, "page": page, "answer": answer})
        handle = os.open(self.settings.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, line.encode() + b"\n")
        finally:
            os.close(handle)
        self._served[key] = answer
        return answer

    def _read_ledger(self) -> None:
        if not os.path.exists(self.settings.ledger):
            return
        with open(self.settings.ledger, encoding="utf-8") as file:
            for entry in map(json.loads, file):
                self._served[entry["key"]] = entry["answer"]
                self._pages += entry["page"] > 0
                if entry["what"] == "index":
                    self._open.set()

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.settings.pace)

    def _draw(self, *parts: object) -> float:
        """Between 0 and 1, the same for the same seed and parts."""
        text = ":".join(map(str, (self.settings.seed, *parts)))
        return int.from_bytes(blake2b(text.encode(), digest_size=4).digest()) / 2**32

    def _say(self, key: str, what: str, **details: Any) -> None:
        self._tell({"call": {"key": key, "what": what, **details}})
