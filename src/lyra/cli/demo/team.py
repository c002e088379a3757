"""The demo's team: a supervision tree, and one kernel in one OS process that runs it.

    team            one_for_one; ends when the lead has ended
    ├ desk          rest_for_one, two restarts a minute
    │ ├ rules       temporary: reads the rules and ends
    │ ├ session     permanent: holds a session with the service, and crashes when that is closed
    │ └ index       permanent: is of no use without the session, so it is restarted with it
    └ lead          transient, significant
      └ auth.py …   one reviewer a file, spawned by the lead, each with its own budget

`python -m lyra.cli.demo.team SETTINGS` is started by `lyra demo`, killed with SIGKILL and started again. It writes one
JSON object a line to stdout (every Event, every call at the service, the result) and reads answers to questions from
stdin; the end of stdin means that `lyra demo` has ended, and it ends, too. The programs are ordinary ones; read them
as an example.

`Service` is slow, unreliable, and has a memory of the keys it has served. It keeps a ledger of what it performed, in a
file of its own: that is what the demo counts at the end. Its failures follow from the seed, the page and the try. It
closes the team's session after so many pages (`_CUTS`), which crashes the process that holds it, and performs nothing
more until there is a session and an index again. With `hold` it stops answering after a while, so that the kill meets
calls in flight.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

import msgspec

from lyra.core.budgets.budget import Usage
from lyra.core.effect import Charged, Effect
from lyra.core.naming import give_name
from lyra.core.policies.policy import Backoff, Retry
from lyra.errors import BudgetExceeded, LyraError, error_to_data
from lyra.kernel.kernel import Kernel
from lyra.kernel.programs.context import Context
from lyra.kernel.supervision.child import Child

# ---------------------------------------------------------------- the service

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


@give_name("lyra:demo.ServiceError")
class ServiceError(Exception):
    """The service said no, with an HTTP status; Lyra's Retry reads `status`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status} {_STATUS[status]}")
        self.status = status


@give_name("lyra:demo.SessionLost")
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
        if os.path.exists(self.settings.ledger):
            with open(self.settings.ledger, encoding="utf-8") as file:
                for entry in map(json.loads, file):
                    self._served[entry["key"]] = entry["answer"]
                    self._pages += entry["page"] > 0
                    if entry["what"] == "index":
                        self._open.set()
        self._pages_before = self._pages
        pace = settings.pace
        policy = {
            "retry": Retry(max_attempts=12, backoff=Backoff(initial_s=0.15 * pace + 0.001, max_s=0.8, jitter=0.3)),
            "timeout_s": 0.8 * pace + 0.1,
        }
        self.review_page = _effect(self._review_page, cost=_PAGE_COST, policy=policy)
        self.load_rules = _effect(self._load_rules)
        self.log_in = _effect(self._log_in)
        self.open_index = _effect(self._open_index)
        self.stay = _effect(self._stay)
        self.publish_report = _effect(self._publish_report, idempotent=False)

    # ------------------------------------------------------------ what it can be asked
    async def _review_page(self, file: str, page: int, *, idempotency_key: str) -> Charged:
        key = idempotency_key
        self._tries[key] += 1
        attempt = self._tries[key]
        self._say("calling")
        mood = self._draw("mood", file, page, attempt)
        await self._pause(0.15 + 0.35 * self._draw("time", file, page, attempt))
        if mood < 0.13:
            self._refuse(429)
        if mood < 0.24:
            self._refuse(503)
        if mood < 0.29:
            self._say("silent")
            await asyncio.sleep(3600)  # no answer: the effect's timeout_s ends it
        if key in self._served:
            self._say("known")  # asked before a crash: the same answer, and no second charge
        else:
            await self._maybe_hold(key)
            await self._open.wait()
            self._perform(key, file, page, int(self._draw("findings", file, page) * 4))
            self._pages += 1
            if self._cuts and self._pages >= self._cuts[0]:
                self._cuts.pop(0)
                self._open.clear()
                self._cut.set()
            await self._maybe_hold(key)
            self._say("ok")
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
        await self._open.wait()
        await self._pause(0.5)
        self._perform(idempotency_key, "report", 0, findings)
        return True

    # ------------------------------------------------------------ how it behaves
    def _refuse(self, status: int) -> None:
        self._say(str(status))
        raise ServiceError(status)

    async def _maybe_hold(self, key: str) -> None:
        """Stop answering, some calls before they are performed and some after: in flight when the kill comes."""
        if self.settings.hold and self._pages - self._pages_before >= _PAGES_BEFORE_HOLD:
            if (key in self._served) != (self._held % 2 == 1):
                return
            self._held += 1
            self._say("held")
            await asyncio.sleep(3600)

    def _perform(self, key: str, what: str, page: int, answer: int) -> int:
        """Perform the act itself, once a key. One write to the ledger, which a SIGKILL of this process cannot take
        back."""
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

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.settings.pace)

    def _draw(self, *parts: object) -> float:
        """Between 0 and 1, the same for the same seed and parts."""
        text = ":".join(map(str, (self.settings.seed, *parts)))
        return int.from_bytes(blake2b(text.encode(), digest_size=4).digest()) / 2**32

    def _say(self, what: str) -> None:
        self._tell({"call": what})


def _effect(perform: Callable[..., Any], *, idempotent: bool = True, **more: Any) -> Effect[Any, Any]:
    return Effect(perform, name=perform.__name__.lstrip("_"), needs=SERVICE, idempotent=idempotent, **more)


LEAD_BUDGET: Final = "$0.50"

# file → (pages, budget, priority). The third cannot afford all its pages.
LEAD: Final = [SERVICE, "process.spawn:reviewer", "process.send:lead", "process.send:index", "human.ask:confirmation"]
REVIEWER: Final = [SERVICE, "process.send:lead"]
FILES: Final[dict[str, tuple[int, str, str]]] = {
    "auth.py": (7, "$0.10", "high"),
    "billing.py": (7, "$0.10", "normal"),
    "legacy.py": (7, "$0.03", "normal"),
    "search.py": (7, "$0.10", "normal"),
    "export.py": (6, "$0.08", "low"),
}


# ---------------------------------------------------------------- the programs
@give_name("lyra:demo.lead")
async def lead(ctx: Context) -> dict[str, Any]:
    """Hand out the files, gather the reports, ask a human, publish, file."""
    reviewers = [
        ctx.spawn(reviewer, file, pages, name=file, budget=budget, priority=priority, grant=REVIEWER)
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
    await ctx.send("index", {"file": findings})  # by name: it is not the process that had it at first
    filed = await ctx.receive()
    return {"findings": findings, "skipped": skipped, "published": published, "filed": filed["filed"]}


@give_name("lyra:demo.reviewer")
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


@give_name("lyra:demo.rules")
async def rules(ctx: Context) -> int:
    """Read the rules once."""
    return int(await ctx.do(_service.load_rules))


@give_name("lyra:demo.session")
async def session(ctx: Context) -> None:
    """Hold a session. Its end is not handled here: the process crashes, and its supervisor restarts it."""
    await ctx.do(_service.log_in)
    ctx.ready()
    await ctx.do(_service.stay)


@give_name("lyra:demo.index")
async def index(ctx: Context) -> None:
    """File what it is sent."""
    await ctx.do(_service.open_index)
    while True:
        message = await ctx.receive()
        await ctx.send("lead", {"filed": message["file"]})


def _tree() -> list[Child]:
    desk = [
        Child("rules", rules, restart="temporary", name="rules"),
        Child("session", session, restart="permanent", name="session", wait_ready=True),
        Child("index", index, restart="permanent", name="index"),
    ]
    return [
        Child.supervisor("desk", desk, strategy="rest_for_one", max_restarts=2, window_s=60.0, name="desk"),
        Child("lead", lead, restart="transient", significant=True, name="lead", budget=LEAD_BUDGET, grant=LEAD),
    ]


_service: Service  # set once by `_work`, before any program runs


# ---------------------------------------------------------------- one kernel in one OS process
def _tell(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def _work(settings: Settings) -> None:
    global _service
    _service = Service(settings, _tell)
    kernel = Kernel(settings.store, programs=[lead, reviewer, rules, session, index])
    kernel.on_event(lambda event: _tell({"event": json.loads(event.to_json())}))
    async with kernel:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _answer, kernel)
        team = await kernel.supervise(_tree(), pid="team", name="team", auto_shutdown="any_significant")
        ended = await kernel.process("lead").wait()
        await team.wait()
        if ended.error is not None:
            raise ended.error
        _tell({"result": ended.result})


def _answer(kernel: Kernel) -> None:
    """Answer a question with a line from stdin; the end of stdin means that `lyra demo` has ended."""
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
    from lyra.cli.demo.team import _main as main  # so that the programs are named after this module

    sys.exit(main())
