"""FileAgent: an agent of a Markdown file (`lyra.sage.extensions.agent_files`) that works for a person, without Sage.

Sage gives such an agent work as its sub-agent. Here it has what Sage would give it: the built-in tools, the repository
map, skills, tools of files, plugins and MCP servers, limited to those that its file names. The permission files of the
folder hold, and its own mode counts where it is tighter. Its conversation and its prompt are its own: it has no memory
and no sub-agents. Nothing is started here; `lyra.cli.commands.acp` serves it to an editor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec

from lyra.agents.agent import Agent
from lyra.agents.declaration.agent import CONTINUATIONS
from lyra.agents.headless.options import HeadlessOptions
from lyra.agents.headless.setup import (
    AuditLogs,
    all_tools,
    answering_settings,
    model_of,
    setup_of,
    unknown_tools,
)
from lyra.agents.session.shared import runtime_of
from lyra.config import Config
from lyra.core.checking.check import did_you_mean
from lyra.core.event import Event
from lyra.core.rights.capability import Grant
from lyra.core.tool import Tool
from lyra.core.user_folders import data_folder
from lyra.errors import ConfigError
from lyra.kernel.kernel import Kernel
from lyra.sage.agent.tasks.sub_agents import TOOL_NAMES, TaskSpec, grant_of, narrow_permissions, spec_of
from lyra.sage.extensions.agent_files import SubAgentDefinition
from lyra.sage.extensions.extensions import Extensions
from lyra.sage.extensions.hooks.hooks import Hooks
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.permissions.rules import Rule
from lyra.tools.source import ToolSource

_SERVER_TOOL: Final = "mcp__"
_NAME_A_MODEL: Final = "write `model: PROVIDER/MODEL` in the agent's file"


def agent_definition(name: str | None, extensions: Extensions) -> SubAgentDefinition:
    """Return the agent of this name; ConfigError with the names that there are, or with what keeps its file from
    counting."""
    definitions = extensions.sub_agents()
    definition = definitions.get(name or "")
    if definition is None:
        raise _unknown(name, definitions, extensions)
    if definition.worktree:
        raise ConfigError(
            f"the agent {definition.name!r} works in a git worktree of its own, which only Sage gives it",
            hint=f"let Sage hand it work, or take `worktree` out of {definition.source}",
            key="--agent",
        )
    return definition


def _unknown(name: str | None, known: Mapping[str, SubAgentDefinition], extensions: Extensions) -> ConfigError:
    listed = f"there are: {', '.join(known)}"
    if not name:
        hint = f"{listed}; those of a Python file: --load FILE.py"
        return ConfigError("say which agent: --agent NAME", hint=hint, key="--agent")
    waiting = Extensions(extensions.folder, trusted=True).sub_agents().get(name)
    if waiting is not None:
        return ConfigError(
            f"the agent {name!r} is declared in a file of this folder that is not trusted",
            place=waiting.source,
            hint="trust the folder for this run with --trust-folder, or from now on with `lyra trust add`",
            key="--agent",
        )
    near = did_you_mean(name, known)
    hint = f"did you mean {near!r}? {listed}" if near else listed
    return ConfigError(f"there is no agent {name!r}", hint=hint, key="--agent", also=extensions.agents.problems)


class FileAgent:
    """`agent` is the agent of a definition in one folder. `options` are those of the folder, with the tools of MCP
    servers; `notes` says which tools its file names that there are not."""

    __slots__ = ("_logs", "_setup", "_spec", "agent", "definition", "folder", "notes")

    def __init__(
        self, definition: SubAgentDefinition, extensions: Extensions, options: HeadlessOptions, config: Config
    ) -> None:
        self.definition = definition
        options = msgspec.structs.replace(
            options,
            model=definition.model or options.model,
            more_tools=lambda workspace: _more_tools(workspace, extensions),
            wrap=lambda tools: _select_tools(tools, definition.tools),
        )
        self._logs = AuditLogs(options, config)
        self._setup = setup_of(options, config, logs=self._logs.paths)
        self.folder = self._setup.folder
        model = model_of(options, config, how=_NAME_A_MODEL)
        self._spec = _spec(definition, self._setup.permissions.mode, model)
        plugin_hooks = [hook for hooks in extensions.hooks().values() for hook in hooks]
        # The name of its program: a store may hold sessions with agents of the same name in other folders, and theirs
        # must not continue here.
        self.agent: Agent[Any] = Agent(
            f"{definition.name}.{blake2b(self.folder.encode(errors='surrogateescape'), digest_size=6).hexdigest()}",
            model=self._spec.model,
            system=definition.system,
            tools=self._setup.tools,
            permissions=narrow_permissions(self._spec, self._setup.permissions) or self._setup.permissions,
            hooks=Hooks.for_session(options.hooks, config, self.folder, more=plugin_hooks),
            budget=definition.budget,
            max_iterations=definition.max_turns or options.max_turns,
            description=definition.description,
            **answering_settings(options, config),
        )
        self.agent.continuations = CONTINUATIONS
        rules = [text for text in self.definition.tools or () if not text.startswith(_SERVER_TOOL)]
        names = [tool.name for tool in all_tools(self._setup.tools)]
        self.notes = tuple(
            f"{self.definition.source} names no tool with {rule!r}" + (f"; did you mean {meant!r}?" if meant else "")
            for rule, meant in unknown_tools(rules, names)
        )

    def grant(self) -> Grant:
        """Return the rights of its processes, for the tools there are now."""
        narrowed = grant_of(self._spec)
        return self._setup.grant if narrowed is None else self._setup.grant.narrow(narrowed)

    def attach(self, kernel: Kernel) -> None:
        """Write the kernel's decisions to the audit logs, and keep the rights of processes in step with their tools."""
        self._logs.attach(kernel)

        def regrant(event: Event) -> None:
            session = runtime_of(kernel).sessions.get(event.pid)
            if session is not None and session.agent is self.agent:
                kernel.agent(event.pid).regrant(self.grant())

        kernel.on_event(regrant, kinds=("tools.changed",))

    @staticmethod
    def uses_servers(definition: SubAgentDefinition) -> bool:
        """Return whether it may use tools of MCP servers, so that they have to be started."""
        return definition.tools is None or any(text.startswith(_SERVER_TOOL) for text in definition.tools)


def _spec(definition: SubAgentDefinition, mode: str, model: str) -> TaskSpec:
    return spec_of(definition, definition.name, definition.description, caller_mode=mode, caller_model=model)


def _more_tools(workspace: Workspace, extensions: Extensions) -> list[Tool | ToolSource]:
    from lyra.sage.project.repo_map.repo_map import RepoMap, repo_map_tool

    repo_map = RepoMap(workspace, cache_folder=str(data_folder() / "maps"))
    return [repo_map_tool(workspace, repo_map), extensions]


def _select_tools(tools: Iterable[Tool | ToolSource], names: tuple[str, ...] | None) -> list[Tool | ToolSource]:
    """Return the tools that the rules `names` speak of; None: all of them."""
    if names is None:
        return list(tools)
    rules = tuple(Rule(text, "allow") for text in names)
    limited: list[Tool | ToolSource] = []
    for tool in tools:
        if not isinstance(tool, Tool):
            limited.append(_NamedSource(tool, rules))
        elif _is_named(tool, rules):
            limited.append(tool)
    return limited


def _is_named(tool: Tool, rules: Iterable[Rule]) -> bool:
    return tool.name not in TOOL_NAMES and any(rule.covers_tool(tool.name) for rule in rules)


class _NamedSource:
    """A source of tools without those that no rule speaks of."""

    __slots__ = ("_rules", "_source")

    def __init__(self, source: ToolSource, rules: tuple[Rule, ...]) -> None:
        self._source = source
        self._rules = rules

    def __lyra_tools__(self) -> tuple[Tool, ...]:
        return tuple(tool for tool in self._source.__lyra_tools__() if _is_named(tool, self._rules))

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(getattr(self._source, "problems", ()))
