"""`lyra tools`: list the tools there are here, check files of tools, call one by hand.

The tools are the built-in ones, those of MCP servers, those of the user's folder (`~/.config/lyra/tools`), those of the
project's `.lyra/tools` once it is trusted, and those of `--from`. What a server has it says when it is started, which
`list` does only for `--mcp`. A call is decided by the same rules as an agent's in a run without a person to ask: what
no rule allows is denied.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from lyra.cli.app import CommandGroup, Invocation, json_option
from lyra.cli.commands.trust import render_passed_over, waiting_files
from lyra.cli.render import document, note, printable, table
from lyra.errors import ApprovalRefused, ConfigError

if TYPE_CHECKING:
    from lyra.core.tool import Tool, ToolResult
    from lyra.mcp import McpServers, ServerState
    from lyra.tools.builtin import Workspace
    from lyra.tools.permissions.decision import Permissions
    from lyra.tools.yaml import DynamicTools


_MODES: Final = ("default", "accept-edits", "sandboxed", "plan", "bypass", "deny-unasked")
_EXITS: Final = {"invalid_arguments": 2, "not_found": 2, "permission_denied": 3, "timeout": 4}
_SHOWN_CHARS: Final = 80

_from = click.option(
    "--from", "places", metavar="PATH", multiple=True, help="A file or folder of tools. May be repeated."
)


@click.group(cls=CommandGroup)
def tools() -> None:
    """List the available tools, check files of tools, call a tool."""


@tools.command("list", uses_trust=True)
@_from
@click.option("--mcp", "start", is_flag=True, help="Start the MCP servers, and list their tools too.")
@json_option
@click.pass_obj
def list_(invocation: Invocation, *, places: tuple[str, ...], start: bool, as_json: bool) -> None:
    """List the tools that an agent would have in this folder."""
    from lyra.mcp import McpServers

    servers = McpServers.load(invocation.config, os.getcwd())
    states, theirs = asyncio.run(_start_servers(servers)) if start else (servers.expected(), _NOTHING)
    all_tools, problems = _all(places, servers=theirs)
    _tell_passed_over(invocation)
    if servers.warning:
        problems.append(servers.warning)
    if as_json:
        rows = [
            {"name": item.name, "from": home, "description": item.description, "schema": item.schema}
            for item, home in all_tools.values()
        ]
        document({"tools": rows, "mcp_servers": [item.to_data() for item in states], "problems": problems})
        return
    table(
        ("name", "from", "description"),
        [(item.name, home, _short(item.description)) for item, home in all_tools.values()],
    )
    for problem in problems:
        note(problem)
    if states and not start:
        told = ", ".join(f"{item.name} ({item.state})" for item in states)
        note(f"not listed are the tools of MCP servers: {told}; --mcp starts them")


@tools.command()
@click.argument("files", nargs=-1, required=True)
@json_option
def check(*, files: tuple[str, ...], as_json: bool) -> None:
    """Find every mistake in files of tools, with its line."""
    read = [(file, _read(file)) for file in files]
    wrong = any(source.mistakes for _, source in read)
    if as_json:
        told = [
            {"file": file, "tools": [item.name for item in source], "mistakes": [m.to_data() for m in source.mistakes]}
            for file, source in read
        ]
        document({"ok": not wrong, "files": told})
    else:
        for file, source in read:
            for problem in source.problems:
                click.echo(printable(problem))
            if not source.mistakes:
                click.echo(printable(f"{file}: ok ({', '.join(item.name for item in source) or 'no tools'})"))
    if wrong:
        raise click.exceptions.Exit(2)


@tools.command(uses_trust=True)
@click.argument("name")
@click.argument("given_pairs", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--arg", "pairs", metavar="NAME=VALUE", multiple=True, help="One argument, as text. May be repeated.")
@click.option("--args", "given", metavar="JSON", help="All arguments, as a JSON object.")
@_from
@click.option("--allow", metavar="RULE", multiple=True, help="One more rule that allows. May be repeated.")
@click.option("--deny", metavar="RULE", multiple=True, help="One more rule that denies. May be repeated.")
@click.option("--mode", type=click.Choice(_MODES), help="The permission mode; default: as the permission files say.")
@click.option("--inside", metavar="HOST:PORT", multiple=True, help="Allow this private host.")
@json_option
@click.pass_context
def call(
    ctx: click.Context,
    /,
    *,
    name: str,
    given_pairs: tuple[str, ...],
    pairs: tuple[str, ...],
    given: str | None,
    places: tuple[str, ...],
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    mode: str | None,
    inside: tuple[str, ...],
    as_json: bool,
) -> None:
    """Call a tool. Calls that no rule allows are denied."""
    from lyra.core.tool import admitted, hides
    from lyra.tools.registry import ToolRegistry

    arguments = _arguments(given, (*given_pairs, *pairs))
    _tell_passed_over(ctx.ensure_object(Invocation))
    permissions = _permissions(allow, deny, mode)
    all_tools, problems = _all(places, inside=inside, permissions=permissions)
    for problem in problems:
        note(problem)
    registry = ToolRegistry(item for item, _ in all_tools.values())
    path = _decide(registry[name], arguments, permissions)
    grant = permissions.narrow(ctx.ensure_object(Invocation).config.grant)

    async def call_tool() -> ToolResult:
        hides.set(permissions.is_hidden)
        admitted.set(path)
        return msgspec.structs.replace(await registry.call(name, arguments, grant=grant), id="cli")

    result = asyncio.run(call_tool())
    _show(result, as_json=as_json)
    if result.is_error:
        raise click.exceptions.Exit(_EXITS.get(result.error_code, 1))


# ------------------------------------------------------------------ finding them
class _Source(NamedTuple):
    """Tools, each with where it comes from, and what is wrong with those that are not there."""

    tools: Sequence[tuple[Tool, str]] = ()
    problems: Sequence[str] = ()


_NOTHING: Final = _Source()


def _read(path: str, inside: tuple[str, ...] = ()) -> DynamicTools:
    from lyra.tools.yaml import DynamicTools

    return DynamicTools(path, inside=inside)


async def _start_servers(servers: McpServers) -> tuple[list[ServerState], _Source]:
    """Return the servers once each is connected or has failed, and what they offer then."""
    async with servers:
        tools, states, problems = await servers.tools(), servers.states(), servers.problems
    homes = {name: f"MCP server {state.name}" for state in states for name in state.tools}
    return states, _Source([(item, homes.get(item.name, "MCP servers")) for item in tools], problems)


def _all(
    places: tuple[str, ...],
    *,
    inside: tuple[str, ...] = (),
    permissions: Permissions | None = None,
    servers: _Source = _NOTHING,
) -> tuple[dict[str, tuple[Tool, str]], list[str]]:
    """Every tool with where it comes from, and what is wrong; the first of a name counts, as it does for an agent."""
    from lyra.tools.builtin import Workspace
    from lyra.tools.yaml.places import sources_here

    workspace = Workspace(os.getcwd(), hidden=permissions.is_hidden if permissions is not None else None)
    tools = {item.name: (item, "built in") for item in _list_built_in(workspace, permissions)}
    problems: list[str] = []
    files = (*(_read(path, inside) for path in places), *sources_here(workspace, inside=inside))
    for source in (servers, *(_Source([(item, file.path) for item in file], file.problems) for file in files)):
        problems += source.problems
        for item, home in source.tools:
            if item.name in tools:
                problems.append(f"{home}: the tool {item.name!r} is left out: there is one ({tools[item.name][1]})")
            else:
                tools[item.name] = (item, home)
    return tools, problems


def _tell_passed_over(invocation: Invocation) -> None:
    """Say which files of the folder wait for trust; nothing is asked here."""
    files = waiting_files(invocation, os.curdir)
    if files:
        note(render_passed_over(files))


def _list_built_in(workspace: Workspace, permissions: Permissions | None) -> list[Tool]:
    """Also those that need an agent around them, and say so when they are called here."""
    from lyra.agents.declaration.memory import Memory
    from lyra.agents.helpers.task import task_tool
    from lyra.agents.turn.memory import memory_tools
    from lyra.tools.builtin import builtin_tools

    tools = builtin_tools(workspace, permissions=permissions, attended=False)
    return [*tools, task_tool(), *memory_tools(Memory("cli", tools=True))]


def _arguments(given: str | None, pairs: tuple[str, ...]) -> dict[str, Any]:
    try:
        arguments = json.loads(given) if given is not None else {}
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--args is not JSON: {error}", key="args") from None
    if not isinstance(arguments, dict):
        raise ConfigError('--args is a JSON object: {"name": value}', key="args")
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise ConfigError(f"an argument is NAME=VALUE, not {pair!r}", key="arg")
        arguments[name] = value
    return arguments


# ------------------------------------------------------------------ calling one
def _permissions(allow: tuple[str, ...], deny: tuple[str, ...], mode: str | None) -> Permissions:
    from lyra.tools.permissions.settings import Layer, load_layers, permissions_of

    workspace, home = os.path.realpath(os.getcwd()), os.path.expanduser("~")
    layers = [*load_layers(workspace, home=home, trusted=None), Layer("flags", {"allow": allow, "deny": deny})]
    return permissions_of(layers, workspace=workspace, home=home, mode=mode, attended=False)


def _decide(tool: Tool, arguments: dict[str, Any], permissions: Permissions) -> str | None:
    """Return the real path that the call is about, if it is about one; ApprovalRefused unless a rule, the mode or the
    kind of call allows it."""
    from lyra.tools.permissions.subjects import facts_of, subject_of

    facts = facts_of(tool.name)
    value = arguments.get(facts.argument) if facts.kind == "path" and tool.builtin else None
    path = os.path.realpath(os.path.expanduser(value)) if isinstance(value, str) and value else None
    workspace, home = permissions.workspace, permissions.home
    subject = subject_of(tool.name, arguments, workspace=workspace, home=home, path=path, known=tool.builtin)
    decision = permissions.decide(subject)
    if not decision.allowed:
        fixed = permissions.forbids(subject) is not None  # no rule that allows would change it
        raise ApprovalRefused(
            f"the call is denied: {decision.reason}",
            hint=None if fixed else f"allow it with --allow {tool.name}, or a rule in permissions.toml",
            rule=decision.rule,
        )
    return subject.value if subject.kind == "path" else None


def _show(result: ToolResult, *, as_json: bool) -> None:
    if as_json:
        document(result.to_data())
        return
    output = (
        result.output if isinstance(result.output, str) else json.dumps(result.output, ensure_ascii=False, default=str)
    )
    if result.is_error:
        note(f"{result.error_code}: {output}")
    else:
        click.echo(printable(output), nl=not output.endswith("\n"))


def _short(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 1] + "…"
