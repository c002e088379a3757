"""The tools of one session: those of its agent, those of the agent's sources, and which of them a model is told.

Sources are asked when a message comes, and again before each further call of the model; a change is journaled, so that
a replay has the same tools at the same call. A deferred tool is offered once ToolSearch has found it: `list_offered`
reads that from the transcript. For an agent with neither, all of this is its toolbox and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import msgspec

from lyra.core.message import Message
from lyra.core.tool import Tool
from lyra.errors import ConfigError, ToolError
from lyra.kernel.process.process import Process
from lyra.kernel.process.replay import upcoming
from lyra.kernel.programs.journaled_call import read

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.tools.source import ToolSource


_SEARCH: Final = "ToolSearch"
_ROW: Final = "tools"


class OwnTools(NamedTuple):
    """Facts about the tools that an agent has by itself, which never change."""

    is_all: bool  # neither sources nor a search add to them: what is offered is the toolbox
    foreign: bool  # the description of one is from outside
    guarded: bool  # calls of some are always decided on

    @classmethod
    def from_agent(cls, agent: AgentDeclaration) -> OwnTools:
        toolbox = agent.toolbox
        return cls(
            not agent.sources and not any(tool.deferred or tool.name == _SEARCH for tool in toolbox),
            any(tool.foreign and not tool.deferred for tool in toolbox),
            any(tool.guarded for tool in toolbox),
        )


class Toolset:
    def __init__(self, agent: AgentDeclaration, own: OwnTools) -> None:
        self._agent = agent
        self.is_plain, self._foreign, self.guarded = own
        self._known: dict[str, Tool] = agent.tools
        self._offered: tuple[Tool, ...] = agent.toolbox
        self._published: tuple[str, ...] = ()  # the problems of sources that the last Event named
        self._failures: tuple[str, ...] = ()  # of sources that could not be asked
        self._from_sources: dict[str, Tool] = {}  # their tools when they were last asked
        self._by_source: dict[int, tuple[Tool, ...]] = {}  # the tools that each source gave last
        self._client: tuple[Tool, ...] = ()  # of the caller of the message
        if not self.is_plain:
            self._know(agent.toolbox)

    # ------------------------------------------------------------ a message begins
    def begin(self, process: Process, client: tuple[Tool, ...] = ()) -> None:
        """Ask the sources for their tools; on a replay, take the tools they had then. `client` are the tools that the
        caller of the message runs; names of other tools are not theirs."""
        if client or self._client:
            self._client, self.is_plain = client, False
            self._know((*self._agent.toolbox, *self._from_sources.values()))
        if self._agent.sources:
            self._look(process, self._current())
            self._publish_problems(process)
        if self._foreign:
            self._mark(process)

    def renew(self, process: Process) -> None:
        """Before a further call of the model, ask the sources again.

        A row is written only for a change, so a replay takes one where the journal has one.
        """
        if not self._agent.sources:
            return
        entry = upcoming(process)
        now = self._current()
        if (entry.kind, entry.name) == ("read", _ROW) if entry is not None else now != self._from_sources:
            self._look(process, now)
            if self._foreign:
                self._mark(process)
        self._publish_problems(process)  # a broken file may have changed no tool

    def _mark(self, process: Process) -> None:
        """Taint a process: the description of an untrusted tool is sent with every request."""
        process.kernel.taint.mark(process.pid, "the description of a tool")

    def _look(self, process: Process, now: dict[str, Tool]) -> None:
        listed = read(process, _ROW, lambda: [[tool.name, tool.deferred] for tool in now.values()])
        tools = {name: _as_listed(now.get(name), name, deferred) for name, deferred in listed}
        changed, self._from_sources = tools != self._from_sources, tools
        self._know((*self._agent.toolbox, *tools.values()))
        if changed and process.replay is None:
            process.kernel.publish(process.known_as, "tools.changed", {"tools": list(tools)})

    def _current(self) -> dict[str, Tool]:
        """Return the tools of the sources now, without names that the agent's own tools have; the first source wins."""
        tools: dict[str, Tool] = {}
        self._failures = ()
        for source in self._agent.sources:
            for tool in self._read_source(source):
                if tool.name not in self._agent.tools:
                    tools.setdefault(tool.name, tool)
        return tools

    def _read_source(self, source: ToolSource) -> tuple[Tool, ...]:
        """Return the tools of one source; if it fails, those it gave last, so that the message is answered all the
        same."""
        try:
            self._by_source[id(source)] = tuple(source.__lyra_tools__())
        except Exception as error:  # noqa: BLE001 - a user's source may raise anything
            self._failures += (f"{type(source).__name__} failed: {type(error).__name__}: {error}",)
        return self._by_source.get(id(source), ())

    def _know(self, tools: Iterable[Tool]) -> None:
        known = {tool.name: tool for tool in (*self._client, *tools)}
        if any(tool.deferred for tool in known.values()):
            from lyra.tools.tool_search import tool_search

            known.setdefault(tool_search.name, tool_search)
        self._known = known
        self._foreign = any(tool.foreign and not tool.deferred for tool in known.values())
        self.guarded = any(tool.guarded for tool in known.values())

    def _publish_problems(self, process: Process) -> None:
        """Publish an Event when the problems of the sources have changed."""
        named = (problem for source in self._agent.sources for problem in getattr(source, "problems", ()))
        problems = (*self._failures, *named)
        if problems != self._published:
            self._published = problems
            if process.replay is None:
                process.kernel.publish(process.known_as, "tools.problems", {"problems": list(problems)})

    # ------------------------------------------------------------ asking
    def get(self, name: str) -> Tool | None:
        """Return the tool of a name. One that a replay took for gone is looked for again: after a restart its source
        may have come back since, such as the MCP servers of an editor when its session was loaded."""
        tool = self._known.get(name)
        if tool is not None and tool.run is _refuse_gone:
            back = self._current().get(name)
            if back is not None:
                tool = self._from_sources[name] = _as_listed(back, name, tool.deferred)
                self._know((*self._agent.toolbox, *self._from_sources.values()))
        return tool

    @property
    def names(self) -> list[str]:
        """The names to list for a model that has called an unknown tool."""
        return [name for name, tool in self._known.items() if not tool.deferred]

    def list_deferred(self) -> Iterator[Tool]:
        """Return the tools that ToolSearch searches."""
        return (tool for tool in self._known.values() if tool.deferred)

    def shows_foreign(self, tool: Tool, output: Any) -> bool:
        """Return whether a result of ToolSearch shows the description of an untrusted tool."""
        if not _is_search(tool):
            return False
        from lyra.tools.tool_search import names_in

        return any(name in self._known and self._known[name].foreign for name in names_in(output))

    def list_offered(self, messages: Sequence[Message]) -> tuple[Tool, ...]:
        """Return the tools of the next request, where they are not simply the toolbox (`is_plain`); the same object as
        before where nothing has changed."""
        listed = [tool for tool in self._known.values() if not tool.deferred]
        if not any(self.list_deferred()):  # there is nothing to search
            listed = [tool for tool in listed if not _is_search(tool)]
        listed += (self._known[name] for name in self._list_found(messages))
        offered = tuple(listed)
        if offered != self._offered:
            self._offered = offered
        return self._offered

    def is_hidden(self, tool: Tool, messages: Sequence[Message]) -> bool:
        """Return whether the model was not offered the tool when it made its last call."""
        return tool.deferred and tool.name not in self._list_found(messages)

    def _list_found(self, messages: Sequence[Message]) -> list[str]:
        """Return the deferred tools that ToolSearch has found in this conversation."""
        from lyra.tools.tool_search import collect_found

        searches = self._known.get(_SEARCH)
        if searches is None or not _is_search(searches):
            return []  # another tool of that name finds nothing
        results = (result for message in messages for result in message.tool_results)
        return [name for name in collect_found(results) if name in self._known and self._known[name].deferred]


def _is_search(tool: Tool) -> bool:
    """Return whether it is ToolSearch itself, also with middleware around it, and not another tool of that name."""
    if tool.name != _SEARCH:
        return False
    from lyra.tools.tool_search import tool_search

    return getattr(tool.run, "function", None) is getattr(tool_search.run, "function", 0)


def _as_listed(tool: Tool | None, name: str, deferred: bool) -> Tool:
    """Return the tool as the journal lists it; a tool that is gone since is replaced by one that says so."""
    if tool is None:
        return Tool(name, deferred=deferred, run=_refuse_gone)
    return tool if tool.deferred == deferred else msgspec.structs.replace(tool, deferred=deferred)


async def _refuse_gone(**_: Any) -> None:
    raise ToolError("this tool is no longer there", reason="not_found")


# ---------------------------------------------------------------- client tools
# Tools that the caller of a message runs itself, such as the tools of a web page that talks to an agent.

_QUESTION: Final = "The client runs its tool "
_KIND: Final = "checkpoint"  # such a question never expires by itself
_HIDDEN: Final = "ctx"


def client_tool_rows(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the declarations (`name`, `description`, `schema`) as a message carries them; ConfigError where one is
    wrong."""
    rows: dict[str, dict[str, Any]] = {}
    for declared in tools:
        tool = _tool(declared)
        if tool.name in rows:
            raise ConfigError(f"the client declares the tool {tool.name!r} twice", key="tools")
        if _HIDDEN in tool.schema.get("properties", ()):
            raise ConfigError(f"the tool {tool.name!r} has an argument {_HIDDEN!r}, which is taken", key="tools")
        rows[tool.name] = {"name": tool.name, "description": tool.description, "schema": tool.schema}
    return list(rows.values())


def client_tools(message: Any) -> tuple[Tool, ...]:
    """Return the tools that a message carries."""
    rows = message.get("tools") if isinstance(message, dict) and "lyra.ask" in message else None
    return tuple(_tool(row) for row in rows or ())


def _tool(row: Mapping[str, Any]) -> Tool:
    # Harmless: it runs with the rights of its caller, not with those of this machine. Its output is text from outside.
    return Tool(
        row["name"],
        description=str(row.get("description", "")),
        schema=row.get("schema") or {},
        run=_ClientRun(row["name"]),
        harmless=True,
        untrusted=True,
    )


class _ClientRun:
    """Asks the client for the output of one call."""

    __slots__ = ("_name",)

    takes: ClassVar[frozenset[str]] = frozenset({_HIDDEN})

    def __init__(self, name: str) -> None:
        self._name = name

    async def __call__(self, /, *, ctx: Any, **_arguments: Any) -> Any:
        answer = await ctx.ask(f"{_QUESTION}{self._name}", _KIND, message=ctx.call_id)
        data = answer.data if isinstance(answer.data, dict) else {"output": answer.text}
        if data.get("error"):
            raise ToolError(f"the client could not run {self._name}: {data['error']}", tool=self._name)
        return data.get("output", "")


def client_answer(output: Any, error: str = "") -> dict[str, Any]:
    """Return the answer to such a question, for `kernel.resolve_interrupt`."""
    return {"data": {"output": output, "error": error}}


def client_call_id(interrupt: Interrupt) -> str:
    """Return the id of the tool call that an interrupt asks its client to run; "" for any other question."""
    is_client_call = interrupt.kind == _KIND and interrupt.question.startswith(_QUESTION)
    return interrupt.message if is_client_call else ""
