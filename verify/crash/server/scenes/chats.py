"""Conversations with an agent that has a tool whose effect must not be repeated.

A turn whose answer was lost is looked up in the session: it goes on by itself, or it was never taken and is said again.
A stream is read on with `Last-Event-ID`. A task (`/api/runs`) that was accepted is done, however often the server dies.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from verify.crash.server.callers import Scene, ServerLost
from verify.crash.server.outside import answer_to

__all__ = ["Chats", "StreamedChats", "Tasks"]

_TURNS: Final = 3
_COMPARED_MAX: Final = 6
_POLL_S: Final = 0.1
_ANSWER_S: Final = 60.0


def _receipt(unit: str) -> str:
    return answer_to(f"chat-{unit}")


class _Talk:
    """One session: what was said and answered, as far as the client knows."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.answered: list[tuple[str, str]] = []  # message, answer


class _Talks(Scene):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._talks: list[_Talk] = []

    async def unit(self) -> None:
        talk = _Talk(self.next_name())
        self._talks.append(talk)
        for number in range(_TURNS):
            await self._turn(talk, f"{talk.session_id}-{number}")

    async def _turn(self, talk: _Talk, unit: str) -> None:
        message, expected = f"unit {unit}", f"done: {_receipt(unit)}"
        self.world.turns[talk.session_id] = unit
        answer = await self.until_done(lambda: self._say(talk, message))
        self.expect(answer == expected, f"{message!r} is answered {answer!r}")
        self.world.log.note("seen", f"once/chat-{unit}")
        talk.answered.append((message, answer))

    async def _say(self, talk: _Talk, message: str) -> str:
        raise NotImplementedError

    async def _answer_in(self, talk: _Talk, message: str) -> str | None:
        """The answer to a message that the session has, once it is there; None where it has no such message."""
        listed = await self.request("GET", "/api/sessions")
        if talk.session_id not in {row["session_id"] for row in listed["sessions"]}:
            return None
        async with asyncio.timeout(_ANSWER_S):
            while True:
                session = await self.request("GET", f"/api/sessions/{talk.session_id}")
                spoken = session["messages"]
                places = [place for place, row in enumerate(spoken) if row["role"] == "user" and row["text"] == message]
                self.expect(len(places) < 2, f"{message!r} was taken {len(places)} times")
                rest = spoken[places[-1] :] if places else []
                answers = [row["text"] for row in rest if row["role"] == "assistant" and not row["tool_calls"]]
                if answers:
                    return str(answers[0])
                if not places and session["state"] in _IDLE:
                    return None
                await asyncio.sleep(_POLL_S)

    async def compare(self) -> None:
        for talk in self._talks[-_COMPARED_MAX:]:
            for message, answer in talk.answered:
                kept = await self._answer_in(talk, message)
                self.expect(kept == answer, f"{message!r} was answered {answer!r} and the session has {kept!r}")


_IDLE: Final = ("idle", "ready", "waiting_for_message", "created", "completed")


class Chats(_Talks):
    """One request, one answer."""

    name = "chats"

    async def _say(self, talk: _Talk, message: str) -> str:
        known = await self._answer_in(talk, message)
        if known is not None:
            return known
        body = {"message": message, "session_id": talk.session_id}
        return str((await self.request("POST", "/api/agents/clerk/chat", json=body))["text"])


class StreamedChats(_Talks):
    """The answer as a stream, read on after a restart."""

    name = "streams"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._event_id = ""  # of the turn that is read

    async def _turn(self, talk: _Talk, unit: str) -> None:
        self._event_id = ""
        await super()._turn(talk, unit)

    async def _say(self, talk: _Talk, message: str) -> str:
        path = "/api/agents/clerk/chat/stream"
        options: dict[str, Any] = {"json": {"message": message, "session_id": talk.session_id}}
        method = "POST"
        if self._event_id:
            method, options = "GET", {"headers": {"last-event-id": self._event_id}}
        elif (known := await self._answer_in(talk, message)) is not None:
            return known
        async for event in self.world.events(method, path, user=self.user, **options):
            self._event_id = event.id or self._event_id
            if event.word == "result":
                self.expect(event.data["status"] == "success", f"{message!r}: {event.data}")
                return str(event.data["text"])
        raise ServerLost  # a stream without a result: its server was killed


class Tasks(_Talks):
    """Work that is accepted (202) and looked up later."""

    name = "tasks"

    async def unit(self) -> None:
        unit = self.next_name()
        body = {"agent": "clerk", "message": f"unit {unit}"}
        self.world.turns[f"?{unit}"] = unit
        try:
            started = await self.request("POST", "/api/runs", json=body)
        except ServerLost:
            return  # its id is not known
        talk = _Talk(started["run_id"])
        self.world.turns[talk.session_id] = unit
        self._talks.append(talk)
        await self.until_done(lambda: self._end(talk, unit))

    async def _end(self, talk: _Talk, unit: str) -> None:
        expected = f"done: {_receipt(unit)}"
        answer = await self._answer_in(talk, f"unit {unit}")
        self.expect(answer is not None, f"task {unit} was accepted and is lost")
        if answer is not None:
            self.expect(answer == expected, f"task {unit} gives {answer!r}")
            self.world.log.note("seen", f"once/chat-{unit}")
            talk.answered.append((f"unit {unit}", answer))
