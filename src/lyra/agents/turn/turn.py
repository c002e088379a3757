"""Turn: one message to an agent on the way to its answer.

Every step of a turn (the system prompt, the model calls, the tool calls, a question to a person) takes a Turn and finds
in it the process that runs it, the session it belongs to and the caller who waits. It does nothing by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.session.replies import NOTICE, Pending, Sink
from lyra.core.message import Message
from lyra.core.tool import ToolCall, ToolResult
from lyra.kernel.process.replay import upcoming
from lyra.kernel.programs.journaled_call import read

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.agents.session.session import AgentSession
    from lyra.agents.session.shared import AgentRuntime
    from lyra.core.budgets.budget import Budget
    from lyra.kernel.process.process import Process
    from lyra.kernel.programs.context import Context
    from lyra.models.provider import LLMProvider


class Turn:
    """`pending` is the answer that a caller waits for; None for a message without a caller."""

    __slots__ = (
        "agent",
        "continued",
        "ctx",
        "ended_by",
        "pending",
        "process",
        "refusals",
        "runtime",
        "session",
        "status",
        "system",
    )

    def __init__(self, ctx: Context, runtime: AgentRuntime, session: AgentSession, pending: Pending | None) -> None:
        self.ctx = ctx
        self.process: Process = ctx.own_process
        self.runtime = runtime
        self.session = session
        self.agent: AgentDeclaration = session.agent
        self.pending = pending
        self.status = "success"  # of the answer: "max_tokens" or "budget" where it was cut
        self.system = ""  # the system prompt, once it is made
        self.ended_by = ""  # why a hook ends the turn, once one does
        self.continued = 0  # how often the model went on after its limit had cut it off
        self.refusals = 0  # how often hooks had the model continue after an answer

    @property
    def sink(self) -> Sink | None:
        """The stream of events that the caller reads, if it does."""
        return self.pending.sink if self.pending is not None else None

    @property
    def scopes(self) -> tuple[Budget, ...]:
        """The budgets that the caller has opened around its question."""
        return self.pending.scopes if self.pending is not None else ()

    @property
    def has_hooks(self) -> bool:
        """Whether hooks may run next: the agent has some, or the journal of a replay has their outcome."""
        if self.session.hooks is not None:
            return True
        if self.process.replay is None:
            return False
        entry = upcoming(self.process)
        return entry is not None and entry.name.startswith("hook:")

    def hook_event(self, own: str, of_subagent: str) -> str:
        """Return the name of a moment: it differs between the agent of a session and a sub-agent."""
        return of_subagent if self.session.subagent_type else own


# What a fork does otherwise than the run that it was forked from: another model, another system prompt.

MODEL: Final = "model"
SYSTEM: Final = "system"
SINCE: Final = "from_key"
_NOTHING: Final[Mapping[str, Any]] = {}


def _difference(process: Process) -> Mapping[str, Any]:
    forks = process.core.forks
    fork = forks.get(process.pid) if forks else None
    return _NOTHING if fork is None or process.keys < int(fork.get(SINCE, 0)) else fork


def models_here(turn: Turn) -> Sequence[str | LLMProvider]:
    """Return the models to ask next, in order."""
    model = _difference(turn.process).get(MODEL)
    return (str(model),) if model else turn.agent.models


def system_here(turn: Turn) -> str:
    """Return the system prompt of the next call."""
    system = _difference(turn.process).get(SYSTEM)
    return turn.system if system is None else turn.runtime.clean(str(system))


# Puts waiting notices into the conversation, before the model is asked.

NOTICES: Final = "notices"  # the row


def add_notices(turn: Turn) -> None:
    """Add one message with all notices that wait; nothing where none does."""
    process, source = turn.process, turn.runtime.notices.get(turn.process.known_as)
    entry = upcoming(process)
    if entry is not None:
        if (entry.kind, entry.name) != ("read", NOTICES):  # then there were none
            return
    elif source is None or not source.waiting():
        return
    waiting = source.waiting if source is not None else list
    taken = read(process, NOTICES, lambda: [[*notice[: 2 + notice.by_user]] for notice in waiting()])
    if source is not None:
        source.on_taken([notice[0] for notice in taken])
    turn.session.messages.append(notice_message(taken))


def notice_message(taken: list[list[Any]]) -> Message:
    """Return the message that the row of these notices represents; rows of earlier versions have no third part."""
    words = [text for _, text, *by_user in taken if by_user == [True]]
    notices = [text for _, text, *by_user in taken if by_user != [True]]
    parts = ["(Notice by the program, not by the user.)", *notices] if notices else []
    parts += ["(The user sent this while you were working.)", *words] if words else []
    return Message("user", "\n".join(parts))


# RepeatGuard: notices a model that makes the same calls with the same results, or says the same words beside its
# calls, again and again. The model is told first; the turn ends where it goes on all the same.

_CALLS_MAX: Final = (
    3  # the same calls in a row with the same results, before the model is told; twice that ends the turn
)
_TEXTS_MAX: Final = 6  # the same words in a row, likewise
_TEXT_CHARS_LEAST: Final = 20  # shorter words, such as "Next.", may be said often
_TOLD: Final = (
    "(Notice by the program, not by the user: the same {what} {count} times in a row, with nothing else between. "
    "Do something else, or answer the user; where this goes on, the turn ends.)"
)


class RepeatGuard:
    """Looks at the answers of one turn in their order, each with the results of its calls."""

    __slots__ = ("_last", "_same_calls", "_same_texts", "_text")

    def __init__(self) -> None:
        self._last: Any = None
        self._text = ""
        self._same_calls = 0
        self._same_texts = 0

    def check(self, calls: Sequence[ToolCall], results: Sequence[ToolResult], text: str) -> tuple[str, str]:
        """(the status that ends the turn, a notice for the model) after an answer; both are empty where it does
        something new. `calls` are those that poll nothing."""
        words = text.strip()
        if not calls:  # it waits for something, which may take long
            self._last, self._text, self._same_calls, self._same_texts = None, "", 0, 0
            return "", ""
        done = [[call.name, call.arguments] for call in calls], [result.output for result in results]
        self._same_calls = self._same_calls + 1 if done == self._last else 1
        self._same_texts = self._same_texts + 1 if words == self._text else 1
        self._last, self._text = done, words
        if self._same_calls >= 2 * _CALLS_MAX:
            return "repetition", ""
        if self._same_calls >= _CALLS_MAX:
            return "", _TOLD.format(what="call had the same result", count=self._same_calls)
        if self._same_texts < _TEXTS_MAX or len(words) < _TEXT_CHARS_LEAST:
            return "", ""
        if self._same_texts >= 2 * _TEXTS_MAX:
            return "repeated_text", ""
        return "", _TOLD.format(what="words were said beside calls", count=self._same_texts)


def add_to_result(message: Message, notice: str) -> Message:
    """Return the message of results with a notice behind the last one."""
    last = message.tool_results[-1]
    output = last.output
    if isinstance(output, list):
        output = [*output, {"type": "text", "text": notice}]
    else:
        output = f"{output}\n\n{notice}" if output else notice
    results = (*message.tool_results[:-1], msgspec.structs.replace(last, output=output))
    return msgspec.structs.replace(message, tool_results=results)


# What a model is told after an answer that its limit cut off, or with a call that could not be read.

NOTHING_CAME: Final = NOTICE.format(
    "your answer reached its limit of tokens before it had text or a whole call. Work in smaller steps: write a long "
    "file in several calls, and think less before each."
)
BAD_CALL: Final = NOTICE.format(
    "your call of a tool could not be read, so it was not run. Make it again with valid arguments."
)
