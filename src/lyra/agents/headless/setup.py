"""HeadlessSetup: the folders, tools and permissions of a headless agent, and the Grant of its process.

Three mechanisms hold the agent, one inside the other. The Grant says what the process can do at all: read and write in
its folders, run commands, reach the hosts that a rule names. The permission rules say which calls need no question. The
sandbox holds the commands. Nothing here decides on a call; it only combines files and flags.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.agents.agent import Agent
from lyra.agents.declaration.agent import CONTINUATIONS
from lyra.agents.declaration.memory import Memory
from lyra.agents.headless.options import HeadlessOptions, default_prompt
from lyra.agents.helpers.task import task_tool
from lyra.agents.session.models import check_model_name, collect_keys
from lyra.config import KEYS, Config
from lyra.config.asks import folder_asks
from lyra.config.settings import find_model
from lyra.config.trust import FolderTrust, trust_for
from lyra.core.checking.check import check_integer, did_you_mean
from lyra.core.policies.retry import Backoff, PatientRetry
from lyra.core.providers import EFFORT_TOKENS, can_think
from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import Tool
from lyra.errors import ConfigError
from lyra.kernel.kernel import Kernel
from lyra.sandbox.protection.protected_names import NAMES, OBEYED_KEYS
from lyra.sandbox.protection.protected_places import is_own
from lyra.tools.builtin import Workspace, builtin_tools
from lyra.tools.permissions.answers import Answers
from lyra.tools.permissions.decision import Permissions, may_hold_secrets
from lyra.tools.permissions.rules import Rule
from lyra.tools.permissions.settings import Layer, load_layers, permissions_of
from lyra.tools.source import ToolSource

if TYPE_CHECKING:
    from lyra.sandbox import Sandbox


_JITTER: Final = 0.2  # of the waits, so that not all programs ask again at once
OFFERED_MAX: Final = 20  # tools of one source; where there are more, the model has to search for them
_FETCH: Final = "WebFetch"
_WILDCARDS: Final = frozenset("*?")
# What an agent does besides its tools: it asks its models and people, and has helpers, which answer it.
_OWN: Final = ("tool.use", "model.use", "human.ask", "process.spawn", "process.send")
_NAME_CHARS: Final = 40  # of a folder's name in a memory's scope, before the hash of its path


class HeadlessSetup(NamedTuple):
    folder: str
    also: tuple[str, ...]
    tools: tuple[Tool | ToolSource, ...]
    permissions: Permissions
    memory: Memory | None
    rights: tuple[Capability, ...] = ()  # besides those of the folders and the tools

    @property
    def grant(self) -> Grant:
        """The rights of the tools there are now; computed anew when tools come or a tool's file changes."""
        rights = _rights((self.folder, *self.also), self.permissions, self.tools)
        scopes = [] if self.memory is None else [f"memories.{self.memory.scope}"]
        memory = [Capability(verb, scope) for scope in scopes for verb in ("db.read", "db.write")]
        # Hosts that are denied as a whole; a denied path on a host is left to the rules.
        denied = [_reach(rule) for rule in self.permissions.rules_of("deny", _FETCH) if rule.whole_host]
        return Grant([*rights, *memory, *self.rights], denied)


def setup_of(
    options: HeadlessOptions,
    config: Config | None = None,
    *,
    logs: Sequence[str] = (),
    sandbox: Sandbox | None = None,
) -> HeadlessSetup:
    """Return the setup that the options ask for; ConfigError where one cannot be used. The agent cannot write to
    `logs`. Its commands run in `sandbox`; one is made where none is given. They may read the developer's tools, and
    what the configuration names; it says how the web is searched, too."""
    from lyra.sandbox.developer_tools import find_developer_tools
    from lyra.tools.yaml.places import sources_here

    folder = _folder(options.folder, "the folder")
    also = tuple(dict.fromkeys(_folder(path, "--add-dir") for path in options.also))
    permissions = _permissions(options, folder, also, logs)
    workspace = Workspace(folder, also=also, hidden=permissions.is_hidden)
    own = [*options.more_tools(workspace)] if options.more_tools is not None else [task_tool()]
    own += _search_tools(options, config)
    added = (*own, *options.tools, *sources_here(workspace, trusted=options.trust))
    more = (tool if isinstance(tool, Tool) else _SearchableSource(tool) for tool in added)
    readable = [] if config is None else _list_open("sandbox.readable", config.sandbox.readable)
    writable = [] if config is None else _list_open("sandbox.writable", config.sandbox.writable)
    folders = _folder_rights((folder, *also, *writable))

    def commands() -> Grant:  # anew for each: rules are added while it runs
        return Grant([*folders, Capability("process.exec"), *_hosts(permissions, whole=True)])

    built_in = builtin_tools(
        workspace,
        programs=[*find_developer_tools(), *readable],
        permissions=permissions,
        commands=commands,
        sandbox=sandbox,
    )
    tools: tuple[Tool | ToolSource, ...] = (*built_in, *more)
    if options.wrap is not None:
        tools = tuple(options.wrap(tools))
    memory = Memory.of(Memory(tools=True) if options.memory is None else options.memory, agent=scope_of(folder))
    rights = (*options.rights, *_folder_rights(writable))
    return HeadlessSetup(folder, also, tools, permissions, memory, rights)


def _list_open(key: str, folders: Iterable[str]) -> list[str]:
    """Return the folders that exist, but those that hold keys or are Lyra's own; ConfigError for one in which the home
    folder's keys lie."""
    real = [os.path.realpath(folder) for folder in folders if os.path.exists(folder)]
    home = os.path.realpath(os.path.expanduser("~"))
    for path in real:
        keys = [f"{home}/{name}" for name in OBEYED_KEYS if f"{home}/{name}".startswith(f"{path.rstrip('/')}/")]
        inside = next(filter(os.path.lexists, keys), None)
        if inside is not None:
            raise ConfigError(
                f"{key} names {path}, in which {inside} lies", hint="name folders in which no keys lie", key=key
            )
    return [path for path in real if not may_hold_secrets(path) and not is_own(path, hidden=True)]


def _search_tools(options: HeadlessOptions, config: Config | None) -> list[Tool]:
    """Return the tool that searches the web, where the vendor of the model can or the user names an engine."""
    vendor = "" if config is None else (options.model or find_model(config)).partition("/")[0]
    if config is None or (vendor not in _SEARCHING and config.search.url is None):
        return []
    from lyra.agents.turn.web_search import web_search_tool

    return [web_search_tool(config)]


_SEARCHING: Final = ("anthropic", "openai", "azure", "gemini", "vertex")  # vendors that search on their side


class _SearchableSource:
    """A source of tools. If there are many, they are deferred: a model finds them with ToolSearch."""

    def __init__(self, source: ToolSource) -> None:
        self._source = source
        # Name → (tool, deferred tool). An unchanged tool has the same deferred object each time.
        self._deferred: dict[str, tuple[Tool, Tool]] = {}

    def __lyra_tools__(self) -> tuple[Tool, ...]:
        tools = self._source.__lyra_tools__()
        notices = getattr(self._source, "notices", ())  # names of tools whose descriptions tell the model something
        searched = [tool for tool in tools if tool.name not in notices]
        if len(searched) <= OFFERED_MAX:
            return tools
        self._deferred = {tool.name: self._pair(tool) for tool in searched}
        deferred = (deferred for _, deferred in self._deferred.values())
        return (*deferred, *(tool for tool in tools if tool.name in notices))

    def _pair(self, tool: Tool) -> tuple[Tool, Tool]:
        before = self._deferred.get(tool.name)
        if before is not None and before[0] is tool:
            return before
        return tool, msgspec.structs.replace(tool, deferred=True)

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(getattr(self._source, "problems", ()))


def unknown_tools(rules: Iterable[str], tools: Iterable[str]) -> list[tuple[str, str]]:
    """Rules that match no tool, each with the name that was probably meant."""
    known = list(tools)
    read = [Rule(text, "allow") for text in rules]
    lost = [rule for rule in read if not any(rule.covers_tool(name) for name in known)]
    named = {name.lower(): name for name in known}
    return [(rule.text, named.get(did_you_mean(rule.tool.lower(), named) or "", "")) for rule in lost]


def all_tools(tools: Iterable[Tool | ToolSource]) -> list[Tool]:
    """Return the tools, with those that sources have now."""
    return [tool for given in tools for tool in ((given,) if isinstance(given, Tool) else given.__lyra_tools__())]


def _folder(path: str, what: str) -> str:
    whole = os.path.realpath(os.path.expanduser(path))
    if not os.path.isdir(whole):
        missing = "is not a folder" if os.path.exists(whole) else "does not exist"
        raise ConfigError(f"{what} {path} {missing}", place=whole, key=what)
    if any(char in whole for char in "*?"):
        raise ConfigError(f"{what} {whole} has a * or ? in its name, which rules would read as a pattern", place=whole)
    return whole


def scope_of(folder: str) -> str:
    """Return the scope of the memory for runs in a folder."""
    return f"{os.path.basename(folder)[:_NAME_CHARS]}-{blake2b(os.fsencode(folder), digest_size=6).hexdigest()}"


def _permissions(options: HeadlessOptions, folder: str, also: Sequence[str], logs: Sequence[str] = ()) -> Permissions:
    home = os.path.expanduser("~")
    layers = load_layers(folder, home=home, trusted=options.trust)
    for flag, effect, rules in (
        ("--allowed-tools", "allow", options.allow),
        ("--disallowed-tools", "deny", options.deny),
    ):
        if rules:
            layers.append(Layer("flags", {effect: list(rules)}, flag))
    protected = [f"Edit({os.path.realpath(log)}{end})" for log in logs for end in ("", "/**")]
    if protected:
        layers.append(Layer("flags", {"deny": protected}, "audit"))
    saved = Answers(folder)
    return permissions_of(
        layers,
        workspace=folder,
        home=home,
        mode=options.mode,
        attended=options.attended,
        extra_folders=tuple(also),
        answers=saved.rules(),
        keep=saved.add,
        own_text=_is_own_project(folder, options.trust),
        asks_outside=options.attended,
    )


def _is_own_project(folder: str, given: FolderTrust | bool | None) -> bool:
    """Return whether a folder is the user's own project: its files ask for nothing that the user has not trusted."""
    trust = trust_for(folder, given)
    return all(file.state(trust) == "trusted" for file in folder_asks(folder))


def _rights(folders: Sequence[str], permissions: Permissions, tools: Iterable[Tool | ToolSource]) -> list[Capability]:
    rights = _folder_rights(folders)
    rights.append(Capability("process.exec"))  # the rules say which commands, the sandbox what they reach
    rights += map(Capability, _OWN)  # tools of servers come and go: the rules say which; the budget holds the rest
    rights += _hosts(permissions)
    for tool in all_tools(tools):
        rights += tool.needs
        if permissions.mode == "bypass" or permissions.rules_of("allow", tool.name):
            rights += getattr(tool.run, "rights", ())  # the rights that a tool from a file names, once a rule allows it
    return list(dict.fromkeys(rights))


def _folder_rights(folders: Sequence[str]) -> list[Capability]:
    return [Capability(verb, f"{folder}/**") for folder in folders for verb in ("fs.read", "fs.write")]


def _hosts(permissions: Permissions, *, whole: bool = False) -> list[Capability]:
    """Return the hosts that rules allow; in the mode `bypass`, and where a person is asked about pages, WebFetch may
    reach all. `whole` are the hosts that commands may reach, in every mode: those that a rule names as a whole, because
    a rule to read one page must not open the host to commands, and no mode names a host."""
    if (permissions.mode == "bypass" or permissions.asks_outside) and not whole:
        return [Capability("net.http")]
    rules = permissions.rules_of("allow", _FETCH)
    return [_reach(rule) for rule in rules if not whole or (rule.whole_host and _is_named(rule.host or ""))]


def _is_named(host: str) -> bool:
    """Return whether a pattern names a host, or the hosts below a domain (`*.example.com`); `*` and `*.com` name
    none."""
    name = re.sub(r"^\*{1,2}\.", "", host)
    return bool(name) and not _WILDCARDS.intersection(name) and (name == host or "." in name)


def _reach(rule: Rule) -> Capability:
    return Capability("net.http", rule.host) if rule.host else Capability("net.http")


# AuditLogs: the logs of decisions that a run writes: the user's own, and one that the machine's policy demands.


class AuditLogs:
    """`paths` are files or folders; ConfigError where one of them cannot be."""

    def __init__(self, options: HeadlessOptions, config: Config) -> None:
        self._options = options
        self._config = config
        self.paths = self._logs()

    def attach(self, kernel: Kernel) -> None:
        """Write what the kernel decides to each of them."""
        if not self.paths:
            return
        from lyra.observe.audit import attach_audit

        # The level that was asked for, or a higher one that the project or the machine demands.
        asked = self._options.audit_level or self._config.audit.level
        least: str = self._config.demanded.get("audit.level", asked)
        level = min(asked, least, key=KEYS["audit.level"].words.index)
        for path in self.paths:
            try:
                attach_audit(kernel, path, level=level)
            except OSError as error:
                raise ConfigError(f"the audit log {path} cannot be written: {error.strerror}", key="audit") from None

    def _logs(self) -> list[str]:
        own = self._options.audit or self._config.audit.file
        demanded = self._config.demanded.get("audit.file")
        if own:
            # Refuse a log file that a project has put where programs act on it, or in place of a key.
            parts = os.path.relpath(os.path.realpath(own), os.path.realpath(self._options.folder)).split("/")
            bad = NAMES.part("/".join(part for part in parts if part != ".lyra"))
            if ".." not in parts and bad is not None:
                raise ConfigError(
                    f"the audit log {own} cannot be there: {bad} is protected", hint="such as .lyra/audit/", key="audit"
                )
        logs = [path for path in dict.fromkeys((own, demanded)) if path]
        level = self._options.audit_level
        if not logs and level not in (None, "none"):
            raise ConfigError(
                f"--audit-level {level} says how much is written to an audit log, and there is none",
                hint="name one with --audit FILE, or with file under [audit] in lyra.toml",
                key="--audit-level",
            )
        return logs


# The agent of a run: the model, the prompt and the bounds that the options and the configuration ask for.


def model_of(options: HeadlessOptions, config: Config, *, how: str = "say --model PROVIDER/MODEL") -> str:
    """Return the model that the options name, else the configuration, else the default of a vendor whose key is in the
    environment; ConfigError where there is none. `how` tells the first way to name one, which is that of the
    command."""
    model = options.model or find_model(config)
    if not model:
        raise ConfigError(
            "no model is named",
            hint=f'{how}, set LYRA_AGENT_MODEL, or write model = "…" under [agent] in lyra.toml; with a key such as '
            "ANTHROPIC_API_KEY in the environment a default of its vendor is taken",
            key="model",
        )
    check_model_name(model, collect_keys(config))
    return model


def agent_of(name: str, options: HeadlessOptions, config: Config, setup: HeadlessSetup) -> Agent:
    """Return the agent; ConfigError where no model is named."""
    model = model_of(options, config)
    system = options.system
    if system is None:
        system = default_prompt(setup.folder, setup.also, attended=options.attended)
    agent: Agent[Any] = Agent(
        name,
        model=model,
        system=system,
        tools=setup.tools,
        permissions=setup.permissions,
        memory=setup.memory,
        hooks=options.hooks,
        max_iterations=check_integer(options.max_turns, "max_turns", least=1, most=10**6),
        output=options.output,
        **answering_settings(options, config),
    )
    agent.continuations = CONTINUATIONS
    return agent


def answering_settings(options: HeadlessOptions, config: Config) -> dict[str, Any]:
    """Return the settings of an agent about its answers: how long they may be, the patience with its provider, and how
    much it thinks."""
    retry = config.retry
    backoff = Backoff(initial_s=retry.initial_s, max_s=retry.max_s, jitter=_JITTER)
    return {
        "max_tokens": options.max_tokens or config.agent.max_tokens,
        "retry": PatientRetry(max_attempts=retry.max_attempts, backoff=backoff),
        "thinking_tokens": thinking_tokens(options.effort, model_of(options, config)),
    }


def thinking_tokens(effort: str, model: str) -> int | None:
    """Return how many tokens a model may think for an effort; None where none is wanted, or it cannot think."""
    return (EFFORT_TOKENS[effort] or None) if effort and can_think(model) is not False else None
