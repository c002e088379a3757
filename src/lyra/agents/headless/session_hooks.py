"""SessionHooks: the hooks of a session outside its turns: SessionStart, SessionEnd and Notification.

A program that keeps a session calls `start` and `end`, and `notify` where the user is waited for; `listen` does that
for questions, `wait` for a message that does not come. What hooks add at the start waits in `take_context` until the
next message takes it along, and so becomes a part of the journaled conversation. Nothing of this is in a process:
nothing is repeated or decided by a replay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from lyra.agents.declaration.hooks import AgentHooks, HookOutcome
from lyra.agents.session.events import HookNotice
from lyra.agents.session.shared import runtime_of
from lyra.agents.turn.hook_points import safe_outcome
from lyra.core.event import Event
from lyra.kernel.kernel import Kernel

_END_S: Final = 5.0  # for all hooks of SessionEnd: the user waits for the program to end
_NOTICES_MAX: Final = 100
_IDLE_S: Final = 60.0  # without a message, until hooks are told of it
_IDLE: Final = "the session waits for a message"


class SessionHooks:
    __slots__ = ("_context", "_hooks", "_idle", "_kernel", "_notices", "session_id")

    def __init__(self, hooks: AgentHooks, kernel: Kernel, session_id: str) -> None:
        self._hooks = hooks
        self._kernel = kernel
        self.session_id = session_id
        self._context: list[str] = []
        self._notices: list[HookNotice] = []
        self._idle: asyncio.TimerHandle | None = None

    async def start(self, source: str, *, model: str) -> None:
        """A session begins (`new`), goes on after a restart (`resume`), or has an empty conversation (`clear`)."""
        outcome = await self._run("SessionStart", {"source": source, "model": model})
        if outcome is not None and outcome.context:
            self._context.append(f"[added by a hook]\n{outcome.context}")
            if outcome.tainted:
                self._kernel.taint.mark(self.session_id, "hook for SessionStart")

    async def end(self, reason: str) -> None:
        """The session ends: `exit`, `error`, `cancelled` or `clear`."""
        self.work()
        try:
            async with asyncio.timeout(_END_S):
                await self._run("SessionEnd", {"reason": reason})
        except TimeoutError:
            self._notices.append(HookNotice(f"the hooks for SessionEnd took longer than {_END_S:g} s", "warning"))

    def notify(self, kind: str, message: str) -> None:
        """Tell hooks that the user is waited for, in a task of the kernel: `question` or `idle`."""
        fields = {"kind": kind, "message": message}
        self._kernel.tasks.start(self._run("Notification", fields), name="hook for Notification")

    def wait(self) -> None:
        """A turn is over: notify hooks if no message comes for a minute."""
        self.work()
        self._idle = self._kernel.loop.call_later(_IDLE_S, self.notify, "idle", _IDLE)

    def work(self) -> None:
        """A turn begins, or there will be none: the user is not waited for."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def listen(self) -> Callable[[], None]:
        """Notify hooks of each question to a person; gives the function that ends this."""
        return self._kernel.on_event(self._on_question, kinds=("interrupt.created",))

    def _on_question(self, event: Event) -> None:
        """Later: a listener must not act on the kernel."""
        self._kernel.loop.call_soon(self.notify, "question", str(event.data["question"]))

    def take_context(self) -> str:
        """What hooks have added for the model since the last call."""
        context, self._context = "\n\n".join(self._context), []
        return context

    def take_over(self, earlier: SessionHooks) -> None:
        """Take over what waits in another one: the session goes on in another kernel."""
        self._context += earlier._context
        self._notices += earlier._notices

    def take_notices(self) -> list[HookNotice]:
        """What hooks have said to the user since the last call."""
        notices, self._notices = self._notices[-_NOTICES_MAX:], []
        return notices

    async def _run(self, event: str, fields: dict[str, Any]) -> HookOutcome | None:
        runtime = runtime_of(self._kernel)
        data = runtime.clean_data({"event": event, "session_id": self.session_id, **fields})
        if self._hooks.status_for(event, data) is None:
            return None
        try:
            outcome = await self._hooks.run(event, data)
        except Exception as error:  # noqa: BLE001 - outside a turn there is nothing to deny: the session goes on
            outcome = HookOutcome(warnings=(f"the hooks for {event} failed: {type(error).__name__}: {error}",))
        outcome = safe_outcome(runtime, outcome)
        self._notices += [HookNotice(text) for text in outcome.messages]
        self._notices += [HookNotice(text, "warning") for text in outcome.warnings]
        return outcome
