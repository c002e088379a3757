"""The tools that one session has: those of its agent, those of the agent's sources, and which of them a model is told.

What the sources have is looked up when a message comes, and again before each further call of the model; what is new is
written down, so that a replay has the same tools at the same call. A
deferred tool is told once ToolSearch has found it: `offered` reads that from the transcript. For an agent that has
neither, all of this is its toolbox and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.message import Message
from lyra.core.tool import Tool
from lyra.errors import ToolError
from lyra.kernel.process.call_keys import upcoming
from lyra.kernel.process.process import Process
from lyra.kernel.programs.context import read

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import Agent
    from lyra.tools.source import ToolSource

__all__ = ["Toolset"]

_SEARCH: Final = "ToolSearch"
_ROW: Final = "tools"


class Toolset:
    __slots__ = ("_agent", "_failed", "_foreign", "_had", "_known", "_now", "_offered", "_plain", "_told", "guarded")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._plain = not agent.sources and not any(tool.deferred or tool.name == _SEARCH for tool in agent.toolbox)
        self._known: dict[str, Tool] = agent.tools
        self._offered: tuple[Tool, ...] = agent.toolbox
        self._told: tuple[str, ...] = ()  # what the sources said last
        self._failed: list[str] = []  # which of them could not be asked
        self._now: dict[str, Tool] = {}  # what the sources had at the last look
        self._had: dict[int, tuple[Tool, ...]] = {}  # what each gave last
        self._foreign = any(tool.foreign and not tool.deferred for tool in agent.toolbox)
        self.guarded = any(tool.guarded for tool in agent.toolbox)  # some calls are decided on, whoever spawned it
        if not self._plain:
            self._know(agent.toolbox)

    # ------------------------------------------------------------ a message begins
    def begin(self, process: Process) -> None:
        """Look at the sources; on a replay, have what they had."""
        if self._agent.sources:
            self._look(process, self._current())
            self._tell(process)
        self._mark(process)

    def renew(self, process: Process) -> None:
        """Before a further call of the model: what the sources have by now, if that is something else.

        A row is written only for a change, so a replay takes one where there is one, and nothing where there is none.
        """
        if not self._agent.sources:
            return
        entry = upcoming(process)
        now = self._current()
        if (entry.kind, entry.name) == ("read", _ROW) if entry is not None else now != self._now:
            self._look(process, now)
            self._mark(process)
        self._tell(process)  # a file that broke has changed no tool

    def _mark(self, process: Process) -> None:
        if self._foreign:  # what a stranger's tool says of itself is read with every request
            process.kernel.taint.mark(process.pid, "the description of a tool")

    def _look(self, process: Process, now: dict[str, Tool]) -> None:
        listed = read(process, _ROW, lambda: [[tool.name, tool.deferred] for tool in now.values()])
        theirs = {name: _as_it_was(now.get(name), name, deferred) for name, deferred in listed}
        changed, self._now = theirs != self._now, theirs
        self._know((*self._agent.toolbox, *theirs.values()))
        if changed and process.replay is None:
            process.kernel.publish(process.known_as, "tools.changed", {"tools": list(theirs)})

    def _current(self) -> dict[str, Tool]:
        """What the sources have now, but for names that the agent's own tools have; the first source wins."""
        found: dict[str, Tool] = {}
        self._failed = []
        for source in self._agent.sources:
            for tool in self._of(source):
                if tool.name not in self._agent.tools:
                    found.setdefault(tool.name, tool)
        return found

    def _of(self, source: ToolSource) -> tuple[Tool, ...]:
        """One that fails, which it must not, has what it had: a message is answered all the same."""
        try:
            self._had[id(source)] = tuple(source.__lyra_tools__())
        except Exception as error:  # noqa: BLE001 - somebody else's code
            self._failed.append(f"{type(source).__name__} failed: {type(error).__name__}: {error}")
        return self._had.get(id(source), ())

    def _know(self, tools: Iterable[Tool]) -> None:
        known = {tool.name: tool for tool in tools}
        if any(tool.deferred for tool in known.values()):
            from lyra.tools.tool_search import tool_search

            known.setdefault(tool_search.name, tool_search)
        self._known = known
        self._foreign = any(tool.foreign and not tool.deferred for tool in known.values())
        self.guarded = any(tool.guarded for tool in known.values())

    def _tell(self, process: Process) -> None:
        """An Event when a source has something to complain about that it had not before."""
        said = (problem for source in self._agent.sources for problem in getattr(source, "problems", ()))
        problems = (*self._failed, *said)
        if problems != self._told:
            self._told = problems
            if process.replay is None:
                process.kernel.publish(process.known_as, "tools.problems", {"problems": list(problems)})

    # ------------------------------------------------------------ asking
    def get(self, name: str) -> Tool | None:
        return self._known.get(name)

    @property
    def names(self) -> list[str]:
        """Those that a model may be told of when it asks for one that there is not."""
        return [name for name, tool in self._known.items() if not tool.deferred]

    def deferred(self) -> Iterator[Tool]:
        """What ToolSearch searches."""
        return (tool for tool in self._known.values() if tool.deferred)

    def shows_foreign(self, tool: Tool, output: Any) -> bool:
        """Whether a result holds what strangers say of their tools: one of ToolSearch, which found such a tool."""
        if not _is_search(tool):
            return False
        from lyra.tools.tool_search import names_in

        return any(name in self._known and self._known[name].foreign for name in names_in(output))

    def offered(self, messages: Sequence[Message]) -> tuple[Tool, ...]:
        """The tools of the next request; the same object as before where nothing has changed."""
        if self._plain:
            return self._offered
        told = [tool for tool in self._known.values() if not tool.deferred]
        if not any(self.deferred()):  # nothing to find
            told = [tool for tool in told if not _is_search(tool)]
        told += (self._known[name] for name in self._found(messages))
        made = tuple(told)
        if made != self._offered:
            self._offered = made
        return self._offered

    def is_hidden(self, tool: Tool, messages: Sequence[Message]) -> bool:
        """Whether the model was not told of it when it made its last call."""
        return tool.deferred and tool.name not in self._found(messages)

    def _found(self, messages: Sequence[Message]) -> list[str]:
        from lyra.tools.tool_search import found_in

        searches = self._known.get(_SEARCH)
        if searches is None or not _is_search(searches):
            return []  # somebody else's tool of that name decides nothing
        results = (result for message in messages for result in message.tool_results)
        return [name for name in found_in(results) if name in self._known and self._known[name].deferred]


def _is_search(tool: Tool) -> bool:
    """ToolSearch itself, also with layers around it; not another tool of that name."""
    if tool.name != _SEARCH:
        return False
    from lyra.tools.tool_search import tool_search

    return getattr(tool.run, "function", None) is getattr(tool_search.run, "function", 0)


def _as_it_was(tool: Tool | None, name: str, deferred: bool) -> Tool:
    """The tool of a message that is being replayed; one that has gone since can only say so."""
    if tool is None:
        return Tool(name, deferred=deferred, run=_gone)
    return tool if tool.deferred == deferred else msgspec.structs.replace(tool, deferred=deferred)


async def _gone(**_: Any) -> None:
    raise ToolError("this tool is no longer there", reason="not_found")
