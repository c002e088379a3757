"""What the server of the crash harness runs, and the log of what its acts did to the world outside.

The file is given to `lyra serve --load` and to `lyra worker --load`. The log only grows. A line is one write to a file
opened with O_APPEND and survives the killing of its writer: `act KEY` for an act performed, `seen KEY` when a client
was told of its result. An act whose key stands behind `seen` again was performed a second time after it had finished.
An act of a kind that must not be repeated is there once at most.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

__all__ = ["LOG_VARIABLE", "ActLog", "answer_to", "setup"]

LOG_VARIABLE: Final = "SERVER_CRASH_LOG"
_ACT_S: Final = 0.02
_UNIT: Final = re.compile(r"unit ([0-9a-z-]+)")


class ActLog:
    """See the module."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, word: str, key: str) -> None:
        os.write(self._file, f"{word} {key}\n".encode())

    def was_performed(self, key: str) -> bool:
        return f"act {key}" in self._path.read_text().splitlines()

    def failures(self) -> list[str]:
        """Acts that were performed after their result had been seen, or more than once where that must not be."""
        seen: set[str] = set()
        performed: Counter[str] = Counter()
        failures = []
        for line in self._path.read_text().splitlines():
            word, _, key = line.partition(" ")
            if word == "seen":
                seen.add(key)
                continue
            performed[key] += 1
            if key in seen:
                failures.append(f"{key} was finished and is performed again")
            elif performed[key] > 1 and key.startswith("once/"):
                failures.append(f"{key} is performed {performed[key]} times")
        return failures

    def acts(self) -> int:
        return sum(line.startswith("act ") for line in self._path.read_text().splitlines())

    def close(self) -> None:
        os.close(self._file)


def answer_to(unit: str) -> str:
    """What an act gives for a unit of work: a function of its argument."""
    return f"receipt-of-{unit}"


async def _act(kind: str, unit: str) -> str:
    log = ActLog(Path(os.environ[LOG_VARIABLE]))
    try:
        log.note("act", f"{kind}/{unit}")
    finally:
        log.close()
    await asyncio.sleep(_ACT_S)
    return answer_to(unit)


async def measure(envelope: Any) -> dict[str, str]:
    """A stage that may be run twice."""
    return {"receipt": await _act("repeatable", envelope.raw_input)}


async def pay(envelope: Any) -> dict[str, str]:
    """A stage that must not be run twice."""
    return {"receipt": await _act("once", envelope.raw_input)}


async def deliver(envelope: Any) -> dict[str, str]:
    """A stage that a worker in another process runs."""
    return {"receipt": await _act("worker", envelope.raw_input)}


def _speak(request: Any) -> Any:
    """The model of the agent `clerk`: it calls its tool for the unit that the user names, and repeats the receipt."""
    from lyra.models.script import Reply, ScriptedCall

    last = request.messages[-1]
    if last.role == "user":
        unit = _UNIT.search(last.text)
        if unit is None:
            return "which unit?"
        return Reply(tool_calls=(ScriptedCall(name="transfer", arguments={"unit": unit[1]}),))
    return f"done: {_receipt(request)}"


def _receipt(request: Any) -> str:
    """The receipt in the result of the last tool call."""
    text = str(request.messages[-1])
    match = re.search(r"receipt-of-[0-9a-z-]+", text)
    return match[0] if match else text


def setup(served: Any) -> None:
    """Called with the kernel of a server, or with a worker."""
    if hasattr(served, "register_service") and not hasattr(served, "spawn"):
        served.register_agent("deliver", deliver, idempotent=True)
        return
    from lyra import Agent, tool
    from lyra.models.sim import SimProvider

    @tool
    async def transfer(unit: str) -> str:
        """Pay for a unit."""
        return await _act("once", f"chat-{unit}")

    served.register_agent("measure", measure, idempotent=True)
    served.register_agent("pay", pay)
    served.register(Agent("clerk", model=SimProvider(_speak), tools=[transfer]))
