"""AgentSessions: sessions of an editor with any agent of Lyra's, in one kernel.

The agent is as its program declares it: its model, its tools and its rules are its own. The folder that an editor names
is shown and listed with the session, and changes nothing of what the agent may do; a session in a folder that the agent
does not work in is refused. MCP servers that the editor hands over are tools of their session, where the command that
serves the agent says how they are started (`servers`). Sessions can be loaded again where the kernel's store is
durable: a turn that was under way when the program ended continues when its session is opened again; its questions are
asked anew, and its answer is told at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from acp import helpers, schema

from lyra.agents.acp.editor_agent import (
    INTERNAL_ERROR,
    EditorQuestions,
    EditorSession,
    EditorSessions,
    SessionRequest,
    real_folder,
    session_info,
)
from lyra.agents.acp.refusals import STOP_REASONS, EditorPrompt, invalid, refusal
from lyra.agents.acp.updates import render_text
from lyra.agents.session.events import AnswerDone, QuestionLine, line_of
from lyra.agents.session.shared import questions_below, runtime_of, stop_turn
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.errors import AgentFailed, EffectInDoubt, LyraError

if TYPE_CHECKING:
    from lyra.agents.agent import Agent
    from lyra.agents.session.agent_process import AgentProcess
    from lyra.agents.session.replies import Pending
    from lyra.core.message import Message
    from lyra.core.rights.capability import Grant
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.kernel.kernel import Kernel

_TITLE_CHARS_MAX: Final = 80
_DECISIONS: Final = ("allow", "always", "deny", "never")
_GROUP: Final = "acp.sessions"  # a blackboard of the kernel: which folder each session is of
_log: Final = logging.getLogger("lyra.agents")


class EditorServers(Protocol):
    """The MCP servers of sessions. It is also the source of their tools, which the agent has."""

    async def open(self, pid: str, folder: str, given: list[Any] | None) -> None: ...

    async def close(self, pid: str) -> None: ...


class AgentSessions(EditorSessions):
    """See the module. `title` is shown in place of the agent's name. An agent that works in one `folder` has sessions
    in it and below it alone; without one, in any. `grant` gives the rights of a session's process; without it, the
    process has the kernel's. `servers` are those that the editor hands over; without it they are left out."""

    def __init__(
        self,
        kernel: Kernel,
        agent: Agent[Any],
        *,
        title: str = "",
        folder: str = "",
        grant: Callable[[], Grant] | None = None,
        servers: EditorServers | None = None,
    ) -> None:
        self._kernel = kernel
        self._agent = agent
        self.name = self.title = title or agent.name
        self.is_durable = kernel.journal is not None
        self.takes_servers = servers is not None
        self._folder = real_folder(folder) if folder else ""
        self._grant = grant
        self._servers = servers

    def check_folder(self, folder: str) -> None:
        if self._folder and os.path.commonpath((folder, self._folder)) != self._folder:
            raise invalid(f"the agent {self.title} works in {self._folder}; start `lyra acp` in {folder} to work there")

    async def open(self, request: SessionRequest) -> EditorSession:
        if request.resume is not None:
            return await self._open_again(request, request.resume)
        folder, session_id = real_folder(request.folder), self._kernel.entropy.text(16)
        pid = _pid(session_id)
        grant = None if self._grant is None else self._grant()
        try:
            for model in self._agent.models:
                runtime_of(self._kernel).models.find(model)  # raises where the provider is not known, or has no key
            await self._open_servers(pid, folder, request.servers)
            process = await self._kernel.spawn(self._agent, pid=pid, grant=grant)
            groups = self._kernel.groups
            await groups.create(_GROUP, exist_ok=True)
            row = {"agent": self._agent.name, "folder": folder, "began_at": self._kernel.clock.now()}
            await groups.bb_set(_GROUP, session_id, row)
        except LyraError:
            if self._servers is not None:
                await self._servers.close(pid)
            raise
        return AgentEditorSession(request.client, session_id, folder, process, self._servers)

    async def _open_again(self, request: SessionRequest, session_id: str) -> EditorSession:
        row = self._rows().get(session_id) if len(session_id) <= NAME_LENGTH_MAX else None
        if row is None or not self.is_durable:
            raise invalid(f"there is no session {session_id[:80]!r}")
        pid, folder = _pid(session_id), row["folder"]
        await self._open_servers(pid, folder, request.servers)
        process = self._kernel.agent(pid)
        if self._grant is not None:
            process.regrant(self._grant())  # after a restart it has those that it began with
        return AgentEditorSession(request.client, session_id, folder, process, self._servers)

    async def _open_servers(self, pid: str, folder: str, given: list[Any] | None) -> None:
        if self._servers is not None:
            await self._servers.open(pid, folder, given)
        elif given:
            _log.warning("%s MCP servers of the editor are not given to the agent", len(given))

    def list(self, folder: str | None, first: int, count: int) -> list[schema.SessionInfo]:
        rows = [item for item in self._rows().items() if folder in (None, item[1]["folder"])]
        rows.sort(key=lambda item: item[1]["began_at"], reverse=True)
        return [self._info(session_id, row) for session_id, row in rows[first : first + count]]

    def _rows(self) -> dict[str, dict[str, Any]]:
        """Return the sessions of the agent whose process is alive."""
        if _GROUP not in self._kernel.groups.names():
            return {}
        processes = self._kernel.processes
        return {
            session_id: row
            for session_id, row in self._kernel.groups.bb_snapshot(_GROUP).items()
            if row["agent"] == self._agent.name
            and (process := processes.get(_pid(session_id))) is not None
            and process.alive
        }

    def _info(self, session_id: str, row: dict[str, Any]) -> schema.SessionInfo:
        messages = self._kernel.agent(_pid(session_id)).messages
        first = next((message.text for message in messages if message.role == "user"), "")
        title = " ".join(render_text(first).split())[:_TITLE_CHARS_MAX] or None
        return session_info(session_id, row["folder"], title, row["began_at"])


def _pid(session_id: str) -> str:
    return f"acp.{session_id}"


class AgentEditorSession(EditorSession):
    """One conversation of an editor with an agent: its process, and the prompt that is under way."""

    def __init__(
        self,
        client: Any,
        session_id: str,
        folder: str,
        process: AgentProcess[Any],
        servers: EditorServers | None = None,
    ) -> None:
        super().__init__(client, session_id, folder)
        self._process = process
        self._servers = servers
        self._answer: Pending[Any] | None = None  # of the prompt that is under way
        self._left_turn: LeftTurn | None = None

    @property
    def messages(self) -> list[Message]:
        return list(self._process.messages)

    @property
    def is_busy(self) -> bool:
        return self._process.current is not None

    async def begin(self) -> None:
        commands = [
            schema.AvailableCommand(name=name, description=about, input=None) for name, (about, _) in _COMMANDS.items()
        ]
        await self._tell(helpers.update_available_commands(commands))
        if self._process.current is not None:
            self._left_turn = LeftTurn(self._process, self._questions, self._say)

    async def close(self) -> None:
        """Let go of the session. A turn that is under way continues; in a durable store, also after the end of the
        program."""
        if self._left_turn is not None:
            await self._left_turn.close()
        if self._servers is not None:
            await self._servers.close(self._process.pid)

    async def run_prompt(self, prompt: EditorPrompt) -> schema.PromptResponse:
        command = _COMMANDS.get(prompt.text.strip().removeprefix("/").partition(" ")[0])
        if command is not None and prompt.text.lstrip().startswith("/"):
            try:
                await self._say(await command[1](self, prompt.text.strip().partition(" ")[2]))
            except LyraError as error:
                raise refusal(error) from None
            return schema.PromptResponse(stop_reason="end_turn")
        content: Any = prompt.content
        if prompt.beside:
            self._process.kernel.taint.mark(self._process.pid, "text of the editor")
            content = f"{content}\n\n{prompt.beside}" if isinstance(content, str) else [*content, prompt.beside]
        try:
            self._answer = await self._process.stream(content, events=True, wait_for_person=True).begin()
            if self._is_cancelled:  # while the message was put into the store
                self._answer.cancel()
            return await self._run(self._answer)
        except LyraError as error:
            raise refusal(error, INTERNAL_ERROR) from None
        finally:
            self._answer = None

    async def _run(self, answer: Pending[Any]) -> schema.PromptResponse:
        status = "success"
        try:
            async for event in answer.events():
                if isinstance(event, AnswerDone):
                    status = event.status
                else:
                    await self._tell_line(line_of(event))
        except AgentFailed as error:
            status = str(error.fields.get("status", ""))
            if status not in STOP_REASONS and not self._is_cancelled:
                raise refusal(error, INTERNAL_ERROR) from None
        except asyncio.CancelledError:
            if not self._is_cancelled:
                raise
        if self._is_cancelled:
            await answer.leave()
        reason = "cancelled" if self._is_cancelled else STOP_REASONS.get(status, "end_turn")
        return schema.PromptResponse(stop_reason=reason)

    async def cancel(self) -> None:
        """Stop what runs: the prompt that is under way, or the turn that an earlier program left."""
        self._is_cancelled = self._is_prompting
        self._questions.withdraw()
        if self._answer is not None:
            self._answer.cancel()
        elif self._left_turn is not None and not self._is_prompting:
            self._left_turn.stop()

    async def answer(self, interrupt_id: str, decision: str = "", *, text: str = "") -> None:
        answer: dict[str, Any] = {"decision": decision, "text": text}
        if decision in _DECISIONS:
            answer["approved"] = decision in ("allow", "always")
        await self._process.kernel.resolve_interrupt(interrupt_id, answer)

    async def _cost(self, _words: str) -> str:
        metrics = self._process.metrics
        cost = "?" if metrics.cost_usd is None else f"${metrics.cost_usd:.4f}"
        return f"{metrics.input_tokens} tokens in, {metrics.output_tokens} out; cost {cost}"

    async def _compact(self, words: str) -> str:
        await self._process.compact(words)
        return "The conversation was summed up."


_COMMANDS: Final[dict[str, tuple[str, Callable[[AgentEditorSession, str], Awaitable[str]]]]] = {
    "cost": ("What this conversation has cost", AgentEditorSession._cost),
    "compact": ("Sum up all but the last turn; words after it say what must be kept", AgentEditorSession._compact),
}


# LeftTurn: a turn that was under way when an earlier program ended, followed to its end for an editor.

_EVENTS: Final = ("interrupt.created",)


class LeftTurn:
    """`say` tells the editor a text as words of the agent, `questions` puts a question to it."""

    def __init__(
        self, process: AgentProcess[Any], questions: EditorQuestions, say: Callable[[str], Awaitable[None]]
    ) -> None:
        self._process = process
        self._questions = questions
        self._say = say
        self._news = asyncio.Event()
        self._asked: set[str] = set()
        kernel = process.kernel
        self._stop_hearing = kernel.on_event(lambda _event: self._news.set(), kinds=_EVENTS)
        self._task = kernel.tasks.start(self._follow(), name="lyra-acp-turn")

    def stop(self) -> None:
        """Stop the turn; what it did so far is not in the conversation."""
        stop_turn(self._process.kernel, self._process.pid)

    async def close(self) -> None:
        """Follow it no more; the turn continues."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _follow(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(self._ask())
                with contextlib.suppress(LyraError):
                    await self._until_ended()
                    answer = next((row.text for row in reversed(self._process.messages) if row.role == "assistant"), "")
                    await self._say(answer)
                asking.cancel()
        finally:
            self._stop_hearing()

    async def _until_ended(self) -> None:
        while (current := self._process.current) is not None:
            try:
                await current
                return
            except EffectInDoubt:  # a person is asked, and the turn continues with the answer
                continue

    async def _ask(self) -> None:
        """Put what the turn waits for to the editor, now and as it comes."""
        kernel = self._process.kernel
        while True:
            self._news.clear()
            for interrupt in questions_below(kernel, self._process.pid):
                if interrupt.id not in self._asked:
                    self._asked.add(interrupt.id)
                    await self._questions.ask(_line_of(interrupt))
            await self._news.wait()


def _line_of(interrupt: Interrupt) -> QuestionLine:
    return {
        "type": "interrupt",
        "id": interrupt.id,
        "kind": interrupt.kind,
        "question": interrupt.question,
        "message": interrupt.message,
    }
