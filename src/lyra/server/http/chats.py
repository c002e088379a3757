"""Chats: conversations with agents, each a durable process, and the streams of their answers.

A session is an agent process whose pid carries its user. The answer to one message can be read as a stream: its events
are kept in a log for a while, so that a client that lost its connection reads on where it was, also after the end. The
turn does not depend on a reader: it continues when the client leaves.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.shared import stop_turn
from lyra.core.limits import (
    SERVER_STREAM_BYTES_MAX,
    SERVER_STREAM_EVENTS_MAX,
    SERVER_STREAM_KEPT_S,
    SERVER_STREAMS_KEPT,
)
from lyra.errors import ConfigError, InvalidTransition, LyraError, NameTaken, NoSuchSession
from lyra.server.http.directory import AgentDirectory
from lyra.server.http.problems import HttpRefusal, problem_of
from lyra.server.http.sse import SseLog
from lyra.server.owners import OwnedProcesses, draw_id, spawn_for

if TYPE_CHECKING:
    from lyra.agents.session.agent_process import AgentProcess
    from lyra.agents.session.replies import Stream
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process
    from lyra.server.identity import Caller


_SESSION_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class ChatStream:
    """The answer to one message as numbered events."""

    __slots__ = ("answer", "ended_s", "failure", "is_stopped", "log", "owner", "session_id")

    def __init__(self, session_id: str, owner: str, name: str) -> None:
        self.session_id = session_id
        self.owner = owner
        self.log = SseLog(name, events_max=SERVER_STREAM_EVENTS_MAX, bytes_max=SERVER_STREAM_BYTES_MAX)
        self.ended_s = 0.0
        self.failure = ""  # why there is no answer, in words
        self.answer: Stream[Any, Any] | None = None  # on its way, if it was asked for here
        self.is_stopped = False  # the turn that it follows was stopped in its process

    def tell(self, word: str, data: dict[str, Any]) -> None:
        if word == "error":
            self.failure = str(data["message"])
        self.log.append(word, data, owner=self.owner)

    def read(self, after: int) -> AsyncGenerator[bytes, None]:
        return self.log.read(after)


class Chats:
    """The chats of one kernel."""

    __slots__ = ("_kernel", "_streams", "directory", "running", "sessions")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.directory = AgentDirectory(kernel)
        self.sessions = OwnedProcesses(kernel, "chat", "session", NoSuchSession)
        self._streams: OrderedDict[str, ChatStream] = OrderedDict()  # by name, the oldest first
        self.running: set[asyncio.Task[None]] = set()  # answers on their way

    def restore(self) -> None:
        """Find the sessions of the store again, and have those continue that were in the middle of a turn."""
        self.directory.register_programs()
        self.sessions.restore()

    # ------------------------------------------------------------------ sessions

    def handle(self, session_id: str, caller: Caller) -> AgentProcess[Any]:
        handle: AgentProcess[Any] = self._kernel.agent(self.sessions.get(session_id, caller).pid)
        return handle

    async def open(self, agent_name: str, caller: Caller, session_id: str) -> tuple[str, AgentProcess[Any]]:
        """Return the session to talk in: a new one, or the one of that id; it is in the store when this returns."""
        agent = self.directory.declaration(agent_name)
        if session_id and not _SESSION_ID.match(session_id):
            raise ConfigError("session_id is 1 to 64 letters, digits, - and _", key="session_id")
        session_id = session_id or draw_id(self._kernel, 16)
        pid = self.sessions.claim(session_id, caller)
        try:
            process = spawn_for(self._kernel, caller.user_id, agent, pid=pid)
        except NameTaken:
            message, hint = f"session {session_id} is one with another agent", "leave session_id out to begin another"
            raise InvalidTransition(message, hint=hint) from None
        if not process.alive:
            raise InvalidTransition(f"session {session_id} has ended", hint="leave session_id out to begin another")
        return session_id, await process

    # ------------------------------------------------------------------ streams

    async def begin(self, session_id: str, caller: Caller, process: AgentProcess[Any], message: Any) -> ChatStream:
        """Put a message to the agent; it is in the store when this returns. Its answer is told to the stream, whether
        it has readers or not. The stream is there before the turn is: a page that hears of the turn finds it."""
        answer = process.stream(message, events=True)
        stream = self._new_stream(session_id, caller.user_id)
        stream.answer = answer
        try:
            await answer.begin()
            await self._kernel.durable()
        except BaseException:
            self._end(stream)
            del self._streams[stream.log.name]
            raise
        self._start(self._tell_answer(stream, answer))
        return stream

    def find(self, event_id: str, session_id: str, caller: Caller) -> tuple[ChatStream, int]:
        """Return the stream of an event and the number of that event; or the last stream of a session, from its
        beginning."""
        name, _, number = event_id.rpartition(".")
        session_id = session_id or name.partition(":")[0]
        if not session_id:
            raise ConfigError("say what to read", hint="the header Last-Event-ID, or ?session_id=", key="session_id")
        process = self.sessions.get(session_id, caller)
        stream = self._streams.get(name) if name else self._last_stream(session_id)
        if stream is not None and stream.session_id != session_id:  # an event of a session that was not asked for
            raise NoSuchSession(f"no event {event_id[:80]!r} in session {session_id[:80]!r}")
        is_over = stream is not None and not name and stream.log.ended
        if stream is None or (is_over and self._kernel.agent(process.pid).current is not None):
            return self._take_up(session_id, caller, process), 0
        after = int(number) if number.isdigit() and len(number) < 16 else 0
        if not stream.log.holds(after):
            raise HttpRefusal(410, "these events are not kept any more", hint=f"see /api/sessions/{session_id}")
        return stream, after

    def cancel(self, session_id: str, caller: Caller) -> int:
        """Give up the answers of a session that are on their way; gives how many. The session continues. A turn that
        was not begun here, such as one from before a restart, is stopped in its process."""
        process = self.sessions.get(session_id, caller)
        pending = [
            stream.answer.pending
            for stream in self._streams.values()
            if stream.session_id == session_id and stream.answer is not None
        ]
        given_up = sum(answer.cancel() for answer in pending if answer is not None)
        if given_up or not stop_turn(self._kernel, process.pid):
            return given_up
        for stream in self._streams.values():
            stream.is_stopped = stream.is_stopped or (stream.session_id == session_id and not stream.log.ended)
        return 1

    def last_failure(self, session_id: str, caller: Caller) -> str:
        """Return why the last message of a session has no answer; "" where it has one, or the reason is not kept any
        more."""
        self.sessions.get(session_id, caller)
        stream = self._last_stream(session_id)
        return "" if stream is None else stream.failure

    def _last_stream(self, session_id: str) -> ChatStream | None:
        streams = [stream for stream in self._streams.values() if stream.session_id == session_id]
        return streams[-1] if streams else None

    def _take_up(self, session_id: str, caller: Caller, process: Process) -> ChatStream:
        """Return a stream for a turn whose own stream is gone, such as after a restart: it begins anew and gives the
        whole. It is one for all that ask while the turn lasts, which may be as long as a person takes to answer."""
        for known in self._streams.values():
            if known.session_id == session_id and known.answer is None and not known.log.ended:
                return known
        stream = self._new_stream(session_id, caller.user_id)
        stream.tell("restart", {"text": ""})
        self._start(self._tell_outcome(stream, self._kernel.agent(process.pid)))
        return stream

    def _new_stream(self, session_id: str, owner: str) -> ChatStream:
        self._forget_old()
        stream = ChatStream(session_id, owner, f"{session_id}:{self._kernel.entropy.text(8)}")
        self._streams[stream.log.name] = stream
        stream.tell("session", {"session_id": session_id})
        return stream

    def _forget_old(self) -> None:
        now_s = self._kernel.clock.monotonic()
        ended = [stream for stream in self._streams.values() if stream.log.ended]
        for place, stream in enumerate(ended):
            if now_s - stream.ended_s > SERVER_STREAM_KEPT_S or len(ended) - place > SERVER_STREAMS_KEPT:
                del self._streams[stream.log.name]

    def _start(self, work: Any) -> None:
        task = self._kernel.tasks.start(work, name="lyra-chat")
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def _tell_answer(self, stream: ChatStream, answer: Stream[Any, Any]) -> None:
        failure: LyraError | None = None
        is_told = False
        is_cancelled = False
        try:
            async for event in answer:
                data = event.to_data()
                word = data.pop("type")
                is_told = is_told or word == "done"
                if word == "done":
                    stream.tell("result", {**data, "session_id": stream.session_id})
                else:
                    stream.tell(word, data)
        except LyraError as error:
            failure = error
        except asyncio.CancelledError:
            pending = None if stream.answer is None else stream.answer.pending
            task = asyncio.current_task()
            is_cancelled = pending is not None and pending.cancelled() and not (task is not None and task.cancelling())
            if not is_cancelled:  # the server stops
                raise
        finally:
            if is_cancelled:
                stream.tell("result", {"status": "cancelled", "text": "", "session_id": stream.session_id})
            elif not is_told:
                self._tell_failure(stream, failure)
            self._end(stream)

    async def _tell_outcome(self, stream: ChatStream, process: AgentProcess[Any]) -> None:
        """Tell the answer of the turn that is under way, or the last one, as a whole."""
        try:
            current = process.current
            if current is not None:
                await current
            text = next((row.text for row in reversed(process.messages) if row.role == "assistant"), "")
            stream.tell("text_delta", {"delta": text})
            status = process.execution.status if process.execution is not None else "success"
            stream.tell("result", {"status": status, "text": text, "session_id": stream.session_id})
        except LyraError as error:
            if stream.is_stopped:
                stream.tell("result", {"status": "cancelled", "text": "", "session_id": stream.session_id})
            else:
                self._tell_failure(stream, error)
        finally:
            self._end(stream)

    def _tell_failure(self, stream: ChatStream, failure: LyraError | None) -> None:
        if failure is None:  # the server stops
            stream.tell("error", {"code": "process", "message": "the server stops; the turn goes on when it is back"})
            return
        problem = problem_of(failure, self._kernel)
        stream.tell("error", {"code": problem.code, "message": problem.message})
        stream.tell("result", {"status": problem.code, "text": "", "session_id": stream.session_id})

    def _end(self, stream: ChatStream) -> None:
        stream.ended_s = self._kernel.clock.monotonic()
        stream.answer = None
        stream.log.end()
