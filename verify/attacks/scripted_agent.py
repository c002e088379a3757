"""An agent whose model makes given calls, one after the other: what each came to, and what was seen on the way.

Used by the suites that try single calls (`keys`, `leaving_data`, `command_rules`). `TIERS` are the sandbox tiers that
work on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from lyra.agents.agent import Agent
from lyra.core.event import Event
from lyra.core.tool import Tool
from lyra.errors import LyraError
from lyra.kernel.kernel import Kernel
from lyra.models.sim import SimProvider
from lyra.sandbox import Profile, Sandbox
from lyra.sandbox.sandbox import TIERS
from lyra.tools.permissions import Permissions

__all__ = ["Attempts", "Call", "Outcome", "call_all", "state_of", "working_tiers"]


class Call(NamedTuple):
    """A call that the model makes."""

    tool: str
    arguments: dict[str, Any]


class Outcome(NamedTuple):
    """What the model was told of one call."""

    call: Call
    output: str
    is_error: bool


class Attempts(NamedTuple):
    """How many attempts there were, and the effects they had, a sentence each."""

    attempts: int
    effects: list[str]

    def __add__(self, other: Attempts) -> Attempts:  # type: ignore[override]  # sums of results, not of tuples
        return Attempts(self.attempts + other.attempts, [*self.effects, *other.effects])


@cache
def working_tiers() -> tuple[str, ...]:
    """The sandbox tiers in which a command runs here."""

    async def works(tier: str, folder: str) -> bool:
        with contextlib.suppress(LyraError):
            return (await Sandbox(tiers=(tier,)).run(["true"], Profile(folder))).ok
        return False

    with TemporaryDirectory(prefix="lyra-tier-") as folder:
        return tuple(tier for tier in TIERS if asyncio.run(works(tier, folder)))


async def call_all(
    calls: Sequence[Call],
    tools: Iterable[Tool],
    permissions: Permissions,
    *,
    store: str = "memory",
    grant: Any = None,
    heard: Callable[[Event], None] | None = None,
    seen: list[str] | None = None,
) -> list[Outcome]:
    """Make the calls in one conversation. `heard` gets every event, `seen` everything that the model is sent."""
    steps = [{"tool_calls": [{"name": call.tool, "arguments": call.arguments}]} for call in calls]

    def model(request: Any) -> Any:
        if seen is not None:
            seen.append(repr(request))
        made = sum(message.role == "assistant" for message in request.messages)
        return steps[made] if made < len(steps) else "done"

    agent = Agent(
        "attacker",
        model=SimProvider(script=model),
        tools=list(tools),
        permissions=permissions,
        max_iterations=len(calls) + 2,
    )
    async with Kernel(store) as kernel:
        if heard is not None:
            kernel.on_event(heard)
        kernel.on_event(_refusing(kernel), ["interrupt.created"])
        process = await kernel.spawn(agent, **({"grant": grant} if grant is not None else {}))
        await process.send("go")
        results = [result for message in process.messages for result in message.tool_results]
    return [Outcome(call, str(result.output), result.is_error) for call, result in zip(calls, results, strict=True)]


def _refusing(kernel: Kernel) -> Callable[[Event], None]:
    """The one person there is says no."""

    def refuse(event: Event) -> None:
        with contextlib.suppress(LyraError):
            kernel.interrupts.resolve_interrupt(event.data["id"], {"approved": False, "decision": "deny"})

    return refuse


def state_of(folder: Path) -> dict[str, bytes | None]:
    """Every name below a folder, with the content of files."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in sorted(folder.rglob("*"))
    }
