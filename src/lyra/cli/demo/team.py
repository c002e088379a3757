"""The demo's team: a supervision tree, and one kernel in one OS process that runs it.

    team            one_for_one; ends when the lead has ended
    ├ desk          rest_for_one, two restarts a minute
    │ ├ rules       temporary: reads the rules and ends
    │ ├ session     permanent: holds a session with the service, and crashes when that is closed
    │ └ index       permanent: is of no use without the session, so it is restarted with it
    └ lead          transient, significant
      └ auth.py …   one reviewer a file, spawned by the lead, each with a budget of its own

`python -m lyra.cli.demo.team SETTINGS` is started by `lyra demo`, killed with SIGKILL and started again. It writes one
JSON object a line to stdout (every Event, every call at the service, the result) and reads answers to questions from
stdin; the end of stdin means that `lyra demo` has ended, and it ends, too. The programs are ordinary ones; read them
as an example. The service is `service`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any, Final

import msgspec

from lyra.cli.demo.service import SERVICE, Service, Settings
from lyra.core.naming import named
from lyra.errors import BudgetExceeded, LyraError, error_to_data
from lyra.kernel.kernel import Kernel
from lyra.kernel.programs.context import Context
from lyra.kernel.supervision.child import Child

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
@named("lyra:demo.lead")
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


@named("lyra:demo.reviewer")
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


@named("lyra:demo.rules")
async def rules(ctx: Context) -> int:
    """Read the rules once."""
    return int(await ctx.do(_service.load_rules))


@named("lyra:demo.session")
async def session(ctx: Context) -> None:
    """Hold a session. Its end is not handled here: the process crashes, and its supervisor restarts it."""
    await ctx.do(_service.log_in)
    ctx.ready()
    await ctx.do(_service.stay)


@named("lyra:demo.index")
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
