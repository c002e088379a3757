"""The demo's team: a lead, its reviewers, and the flaky service they call.

`python -m lyra.cli.demo_team SETTINGS` is one kernel in one OS process, which `lyra demo` starts, kills
with SIGKILL and starts again. It writes one JSON object a line to stdout (every Event, every call at the
service, the result) and reads answers to questions from stdin; when stdin ends, whoever started it is gone
and it goes too.

The service keeps a ledger of the keys it performed, in a file of its own: that is what the demo counts at
the end. Its moods follow from the seed, the key and the try. `lead` and `reviewer` are ordinary programs;
read them as an example.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from hashlib import blake2b
from typing import Any, Final

import msgspec

from lyra.core.budget import Usage
from lyra.core.effect import Charged, Effect
from lyra.core.policy import Backoff, Retry
from lyra.errors import BudgetExceeded, LyraError, error_to_data
from lyra.kernel.context import Context
from lyra.kernel.kernel import Kernel

__all__ = ["FILES", "LEAD_BUDGET", "Settings", "lead", "reviewer"]

LEAD_BUDGET: Final = "$0.50"
SERVICE: Final = "net.http:reviews.example"

# file → (pages, budget, priority). The third cannot afford all its pages.
FILES: Final[dict[str, tuple[int, str, str]]] = {
    "auth.py": (7, "$0.10", "high"),
    "billing.py": (7, "$0.10", "normal"),
    "legacy.py": (7, "$0.03", "normal"),
    "search.py": (7, "$0.10", "normal"),
    "export.py": (6, "$0.08", "low"),
}
_PAGE_COST: Final = "$0.012"  # the most one page may cost: reserved before the call
_PERFORMED_BEFORE_HOLD: Final = 13


class Settings(msgspec.Struct):
    """What `lyra demo` tells one kernel."""

    store: str
    ledger: str
    seed: int
    pace: float  # 1.0 as a person likes to watch it, 0.0 without pauses
    hold: bool  # after a while the service stops answering, so that the kill meets calls in flight


# ---------------------------------------------------------------- the programs
async def lead(ctx: Context) -> dict[str, Any]:
    """Hand out the files, gather the reports, ask a human, publish."""
    reviewers = [
        ctx.spawn(reviewer, file, pages, name=file, budget=budget, priority=priority, grant=[SERVICE])
        for file, (pages, budget, priority) in FILES.items()
    ]
    reports = [await ctx.receive() for _ in reviewers]
    for process in reviewers:
        await process.wait()
    findings = sum(report["findings"] for report in reports)
    skipped = sum(report["skipped"] for report in reports)
    question = f"Publish {findings} findings? {skipped} pages were not paid for."
    answer = await ctx.ask(question, kind="confirmation")
    published = bool(answer.approved) and await ctx.do(_service.publish_report, findings)
    return {"findings": findings, "skipped": skipped, "published": published}


async def reviewer(ctx: Context, file: str, pages: int) -> int:
    """Review page after page until the file or the money ends, then tell the lead."""
    findings = page = 0
    try:
        while page < pages:
            findings += await ctx.do(_service.review_page, file, page + 1)
            page += 1
    except BudgetExceeded:
        pass  # what is done is done; the lead is told what is missing
    await ctx.send("lead", {"file": file, "findings": findings, "skipped": pages - page})
    return findings


# ---------------------------------------------------------------- the service
class ServiceError(Exception):
    """The service said no, with an HTTP status; Lyra's Retry reads `status`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status} {_STATUS[status]}")
        self.status = status


_STATUS: Final = {429: "too many requests", 503: "service unavailable"}


class Service:
    """A simulated HTTP service: slow, flaky, and with a memory of the keys it has served."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.served: dict[str, int] = {}  # key → findings
        self.tries: Counter[str] = Counter()
        self.performed = self.held = 0
        self._read_ledger()
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
        self.publish_report = Effect(self._publish_report, name="publish_report", needs=SERVICE)

    async def _review_page(self, file: str, page: int, *, idempotency_key: str) -> Charged:
        key = idempotency_key
        self.tries[key] += 1
        self._say(key, "calling", page=page, attempt=self.tries[key])
        mood = self._draw("mood", key, self.tries[key])
        await self._pause(0.15 + 0.35 * self._draw("time", key, self.tries[key]))
        if mood < 0.13:
            self._refuse(key, 429)
        if mood < 0.24:
            self._refuse(key, 503)
        if mood < 0.29:
            self._say(key, "silent")
            await asyncio.sleep(3600)  # no answer: the effect's timeout_s ends it
        if key in self.served:
            self._say(key, "known")  # asked before a crash: the same answer, and no second charge
        else:
            await self._maybe_hold(key)
            self._perform(key, file=file, page=page, findings=int(self._draw("findings", key) * 4))
            await self._maybe_hold(key)
            self._say(key, "ok")
        usd = 6_000 + int(5_000 * self._draw("usd", key))
        return Charged(self.served[key], Usage(usd=usd))

    async def _publish_report(self, findings: int, *, idempotency_key: str) -> bool:
        self._say(idempotency_key, "publishing")
        await self._pause(0.5)
        self._perform(idempotency_key, file="report", page=0, findings=findings)
        return True

    def _refuse(self, key: str, status: int) -> None:
        self._say(key, str(status))
        raise ServiceError(status)

    async def _maybe_hold(self, key: str) -> None:
        """Stop answering, some calls before they are performed and some after: in flight when the kill comes."""
        if self.settings.hold and self.performed >= _PERFORMED_BEFORE_HOLD:
            if (key in self.served) != (self.held % 2 == 1):
                return
            self.held += 1
            self._say(key, "held")
            await asyncio.sleep(3600)

    def _perform(self, key: str, *, file: str, page: int, findings: int) -> None:
        """The act itself. One write to the ledger, which a SIGKILL of this process cannot take back."""
        line = json.dumps({"key": key, "file": file, "page": page, "findings": findings})
        handle = os.open(self.settings.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, line.encode() + b"\n")
        finally:
            os.close(handle)
        self.served[key] = findings
        self.performed += 1

    def _read_ledger(self) -> None:
        if os.path.exists(self.settings.ledger):
            with open(self.settings.ledger, encoding="utf-8") as file:
                for entry in map(json.loads, file):
                    self.served[entry["key"]] = entry["findings"]

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.settings.pace)

    def _draw(self, *parts: object) -> float:
        """Between 0 and 1, the same for the same seed and parts."""
        text = ":".join(map(str, (self.settings.seed, *parts)))
        return int.from_bytes(blake2b(text.encode(), digest_size=4).digest()) / 2**32

    def _say(self, key: str, what: str, **details: Any) -> None:
        _tell({"call": {"key": key, "what": what, **details}})


_service: Service  # set once by `_work`, before any program runs


# ---------------------------------------------------------------- one kernel in one OS process
def _tell(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def _work(settings: Settings) -> None:
    global _service
    _service = Service(settings)
    kernel = Kernel(settings.store, programs=[lead, reviewer])
    kernel.on_event(lambda event: _tell({"event": json.loads(event.to_json())}))
    async with kernel:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _answer, kernel)
        handle = kernel.spawn(lead, pid="lead", name="lead", budget=LEAD_BUDGET, grant=["net.http:*.example"])
        ended = await handle.wait()
        if ended.error is not None:
            raise ended.error
        _tell({"result": ended.result})


def _answer(kernel: Kernel) -> None:
    """A line from stdin answers a question; its end means that nobody is there any more."""
    line = os.read(sys.stdin.fileno(), 4096)
    if not line:
        os._exit(1)
    answer = json.loads(line)
    kernel.resolve_interrupt(answer.pop("id"), answer)


def _main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for `lyra demo`, which ends this process itself
    try:
        asyncio.run(_work(msgspec.json.decode(sys.argv[1], type=Settings)))
    except LyraError as error:
        _tell({"error": error_to_data(error)})
        return 1
    return 0


if __name__ == "__main__":
    from lyra.cli.demo_team import _main as main  # so that the programs are named after this module

    sys.exit(main())
