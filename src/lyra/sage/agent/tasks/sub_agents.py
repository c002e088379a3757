"""What a sub-agent is made of: a SubAgentDefinition and its caller become a `TaskSpec`, and that an agent.

The spec is plain data and the argument of the sub-agent's process, so that a session which is opened again makes the
same agent of it, also where the file of the definition has changed since. A sub-agent has at most its caller's tools,
rights and permission mode. One with a worktree has tools that work there, and rights to no other folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from lyra.agents.declaration.agent import AgentDeclaration
from lyra.agents.helpers.task import KINDS, sub_agent_of
from lyra.core.rights.capability import VERBS, Capability, Grant
from lyra.core.tool import Tool
from lyra.sage.extensions.agent_files import SubAgentDefinition, tighter_mode
from lyra.tools.builtin import Workspace, builtin_tools
from lyra.tools.permissions.decision import Permissions
from lyra.tools.permissions.rules import Rule

TOOL_NAMES: Final = ("Task", "TaskOutput", "TaskStop")  # a sub-agent has none of them
GENERAL: Final = SubAgentDefinition(
    name="general",
    description="Does a piece of work with the same tools",
    system=KINDS["general"].system,
)
_READS_ONLY: Final = Grant(allow=["*"], deny=["fs.write", "process.exec", "net.http", "net.listen"])
_ALL_BUT_FILES: Final = tuple(Capability(verb) for verb in VERBS if not verb.startswith("fs."))
_WORKTREE: Final = """

You work in {folder}, a copy of the project of your own: no other agent and no person changes it while you work. Your
changes are looked at and taken over when you are done; do not commit them."""


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`tools` are rules: all that it may use; None is everything that its caller has. No model is the caller's."""

    id: str
    type: str
    description: str  # of the work
    system: str
    tools: tuple[str, ...] | None = None
    model: str = ""
    budget: Any = None
    max_turns: int | None = None
    mode: str = ""  # of its permissions; empty is the caller's
    worktree: str = ""  # the folder that it works in
    repository: str = ""  # the folder of git's own files that it may read there
    placed: str = ""  # its address on the cluster that runs it
    limits: dict[str, int] = {}  # of all that it may spend there

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> TaskSpec:
        return msgspec.convert(data, cls)


def tools_of(spec: TaskSpec, caller: AgentDeclaration) -> list[Tool]:
    """Return the tools of its caller that a sub-agent may use."""
    return _usable(spec, caller.toolbox)


ToolsIn = Callable[[TaskSpec, Permissions], Sequence[Tool]]  # the tools that work in the worktree of a spec


def spec_of(
    definition: SubAgentDefinition, task_id: str, description: str, *, caller_mode: str, caller_model: str
) -> TaskSpec:
    """Return the spec of a sub-agent that begins now; `caller_mode` is empty where its caller has no permissions. The
    model that its caller has now stays its model."""
    mode = definition.permission_mode
    if mode and caller_mode and tighter_mode(mode, caller_mode) != mode:
        mode = ""
    return TaskSpec(
        id=task_id,
        type=definition.name,
        description=description,
        system=definition.system,
        tools=definition.tools,
        model=definition.model or caller_model,
        budget=msgspec.to_builtins(definition.budget),
        max_turns=definition.max_turns,
        mode=mode,
    )


def sub_agent(spec: TaskSpec, caller: AgentDeclaration, tools_in: ToolsIn) -> AgentDeclaration:
    """Return the agent of a spec. Its permissions are its own: they hold also where its caller is not there any
    more."""
    permissions = narrow_permissions(spec, caller.permissions) or caller.permissions
    if spec.worktree:
        base = permissions or Permissions(workspace=spec.worktree, mode=spec.mode or "default")
        tools: list[Any] = _usable(spec, tools_in(spec, base))
        tools += _usable(spec, (tool for tool in caller.toolbox if not tool.folders and not tool.builtin))
        permissions = base
    else:
        tools = _usable(spec, caller.toolbox)
        tools += () if spec.tools is not None else caller.sources
    return sub_agent_of(
        caller,
        spec.type,
        system=spec.system + (_WORKTREE.format(folder=spec.worktree) if spec.worktree else ""),
        tools=tools,
        model=spec.model,
        max_iterations=spec.max_turns,
        permissions=permissions,
        description=spec.description,
    )


def _usable(spec: TaskSpec, tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools that a sub-agent may use: those that one of its rules names."""
    rules = None if spec.tools is None else [Rule(text, "allow") for text in spec.tools]
    return [
        tool
        for tool in tools
        if tool.name not in TOOL_NAMES and (rules is None or any(rule.covers_tool(tool.name) for rule in rules))
    ]


def narrow_permissions(spec: TaskSpec, callers: Permissions | None) -> Permissions | None:
    """Permissions that differ from its caller's; None where they do not. The caller's hold besides."""
    only = [text for text in spec.tools or () if not Rule(text, "allow").bare]
    named = [text for text in spec.tools or () if Rule(text, "allow").bare] if only else []
    if callers is None:
        if not only and not spec.mode:
            return None
        callers = Permissions(workspace=spec.worktree or "/", mode=spec.mode or "default")
    if not (only or spec.mode or spec.worktree):
        return None
    limits = (*only, *named) if only else None
    return callers.for_helper(mode=spec.mode, only=limits, workspace=spec.worktree)


def grant_of(spec: TaskSpec) -> Grant | None:
    """Return what narrows the rights that a sub-agent has from its caller; None: nothing."""
    narrowed = _READS_ONLY if spec.mode == "plan" else None
    if not spec.worktree:
        return narrowed
    files = [Capability(verb, f"{spec.worktree}/**") for verb in ("fs.read", "fs.write")]
    if spec.repository:
        files.append(Capability("fs.read", f"{spec.repository}/**"))
    own = Grant([*_ALL_BUT_FILES, *files])
    return own if narrowed is None else own.narrow(narrowed)


def worktree_tools(spec: TaskSpec, permissions: Permissions) -> list[Tool]:
    """Return the built-in tools, working in the worktree of a spec. Commands there have no network."""
    workspace = Workspace(spec.worktree, hidden=permissions.is_hidden)
    readable = (spec.repository,) if spec.repository else ()
    files = [Capability(verb, f"{spec.worktree}/**") for verb in ("fs.read", "fs.write")]
    files += [Capability("fs.read", f"{path}/**") for path in readable]
    commands = Grant([*files, Capability("process.exec")])
    return builtin_tools(workspace, permissions=permissions, commands=lambda: commands, readable=readable)
