"""`lyra permissions`: ask what would be decided on a call, and by which rule; test the rules with their own examples.

The rules are those of the permission files that hold for this folder, of the answers that were kept for it, and of
`--allow`, `--ask` and `--deny`. Nothing is run: `explain` decides as an agent's call would be decided, and says so. The
decision is no failure, so the exit code is 0 whatever it is, unless `--exit-code` asks for 3 on a denial.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from lyra.cli.app import CommandGroup, Invocation, json_option
from lyra.cli.render import document, note, printable, table
from lyra.core.checking.check import did_you_mean
from lyra.core.secrets.visible import visible
from lyra.core.tool import check_tool_name
from lyra.errors import ConfigError, LyraError
from lyra.tools.permissions.answers import Answers
from lyra.tools.permissions.decision import MODES
from lyra.tools.permissions.rules import Effect, read_rules
from lyra.tools.permissions.settings import Layer, describe_passed_over, load_layers, permissions_of
from lyra.tools.permissions.subjects import GIT, TOOLS, Subject, facts_of, subject_of


@click.group(cls=CommandGroup)
def permissions() -> None:
    """Explain which calls the permissions allow, and test rules with their own examples."""


@permissions.command(uses_trust=True)
@click.argument("tool")
@click.argument("value", required=False)
@click.option("--allow", metavar="RULE", multiple=True, help="One more rule that allows. May be repeated.")
@click.option("--ask", metavar="RULE", multiple=True, help="One more rule that asks. May be repeated.")
@click.option("--deny", metavar="RULE", multiple=True, help="One more rule that denies. May be repeated.")
@click.option(
    "--mode", type=click.Choice(list(MODES)), help="The permission mode; default: as the permission files say."
)
@click.option("--headless", is_flag=True, help="Decide as in a run without a person to ask.")
@click.option("--untrusted", is_flag=True, help="Decide as after reading text from outside.")
@click.option("--exit-code", "with_exit_code", is_flag=True, help="Exit with 3 when it is denied.")
@json_option
@click.pass_context
def explain(
    ctx: click.Context,
    tool: str,
    value: str | None,
    *,
    allow: tuple[str, ...],
    ask: tuple[str, ...],
    deny: tuple[str, ...],
    mode: str | None,
    headless: bool,
    untrusted: bool,
    with_exit_code: bool,
    as_json: bool,
) -> None:
    """Explain the decision on a call of TOOL with VALUE: a command line, a path or a URL."""
    workspace, home = os.path.realpath(os.getcwd()), os.path.expanduser("~")
    flags = Layer("flags", {"allow": allow, "ask": ask, "deny": deny})
    layers = [*load_layers(workspace, home=home, trusted=ctx.ensure_object(Invocation).trust), flags]
    kept = Answers(workspace).rules()
    rules = permissions_of(layers, workspace=workspace, home=home, mode=mode, answers=kept)
    facts = facts_of(_check_tool_name(tool))
    for sentence in () if as_json else describe_passed_over(layers):
        note(sentence)
    path = os.path.realpath(os.path.expanduser(value)) if facts.kind == "path" and value else None
    arguments = {facts.argument or "text": value} if value is not None else {}
    subject = _in_sandbox(subject_of(tool, arguments, workspace=workspace, home=home, path=path))
    decision = rules.decide(subject, tainted=untrusted, attended=not headless)
    if as_json:
        document({"decision": decision.decision, "rule": decision.rule, "reason": decision.reason})
    else:
        click.echo(f"{decision.decision}: {printable(decision.reason)}")
        if decision.rule is not None:
            click.echo(f"  rule: {printable(decision.rule)} ({printable(decision.source)})")
        if decision.decision != "deny":
            if subject.kind == "path" and not subject.inside:
                note(
                    "it is outside the workspace: `lyra agent` reaches it with --add-dir alone, whatever the rules say"
                )
            elif subject.kind == "url" and subject.value is not None:
                from lyra.sandbox.addresses import target_of

                try:
                    target_of(subject.value)
                except LyraError as error:
                    note(f"it is refused whatever the rules say: {printable(error.message)}")
    if with_exit_code and decision.decision == "deny":
        ctx.exit(3)


def _in_sandbox(subject: Subject) -> Subject:
    """Return the subject of a command as an agent has it, whose sandbox holds the command."""
    if subject.line is None or subject.tool == GIT:
        return subject
    from lyra.sandbox.sandbox import may_work

    held = may_work()
    return subject._replace(held=held, reads=held and subject.line.reads_only)


@permissions.command("test")
@json_option
@click.pass_context
def test_rules(ctx: click.Context, *, as_json: bool) -> None:
    """Try every rule of the permission files on its own examples, `match` and `not_match`."""
    workspace, home = os.path.realpath(os.getcwd()), os.path.expanduser("~")
    layers = load_layers(workspace, home=home, trusted=ctx.ensure_object(Invocation).trust, keep_mistakes=True)
    tried = list(try_rules(layers, workspace=workspace, home=home))
    mistakes = other_mistakes(layers)
    failed = bool(mistakes) or any(rule.problem for rule in tried)
    if as_json:
        document({"ok": not failed, "rules": [rule._asdict() for rule in tried], "mistakes": mistakes})
    elif tried:
        rows = [(rule.state, rule.effect, rule.rule, str(rule.examples), rule.problem, rule.source) for rule in tried]
        table(("state", "", "rule", "examples", "", "from"), rows)
    elif not mistakes:
        note("no permission file has a rule; see lyra permissions --help")
    for sentence in (
        () if as_json else (*mistakes, *describe_passed_over(layer._replace(problems=()) for layer in layers))
    ):
        note(sentence)
    ctx.exit(1 if failed else 0)


def _check_tool_name(tool: str) -> str:
    """Return a tool's name; a rule in its place is a mistake, and a name of no built-in tool is told."""
    if "(" in tool:
        name, _, rest = tool.partition("(")
        raise ConfigError(
            f"{tool!r} is a rule, not a tool's name",
            hint=f"write: explain {name} {shlex.quote(rest.removesuffix(')'))}",
        )
    check_tool_name(tool)
    if tool.lower() not in TOOLS and not tool.startswith(("mcp__", "mcp_sampling__")):
        near = did_you_mean(tool.lower(), TOOLS)
        meant = f"; did you mean {TOOLS[near].name}?" if near else ""
        note(f"no built-in tool is named {tool}: it is judged as one of your own{meant}")
    return tool


# ---------------------------------------------------------------- self tests
# The rules of permission files, each tried on its own examples, so that a mistake in one hides none in another.

_EFFECTS: Final[tuple[Effect, ...]] = ("deny", "ask", "allow")
_LENGTH_MAX: Final = 200


class TriedRule(NamedTuple):
    """`examples` counts those that were tried; `problem` says which of them fails, or what is wrong with the rule."""

    effect: Effect
    rule: str
    examples: int
    problem: str
    source: str

    @property
    def state(self) -> str:
        return "problem" if self.problem else "ok" if self.examples else "missing"


def try_rules(layers: Iterable[Layer], *, workspace: str, home: str) -> Iterator[TriedRule]:
    """Every rule of the layers. `missing` is the state of one without examples."""
    for layer in layers:
        for effect in _EFFECTS:
            entries = layer.settings.get(effect, ())
            is_list = isinstance(entries, Sequence) and not isinstance(entries, str)
            for entry in entries if is_list else [entries]:
                yield _try_rule(entry if is_list else [entry], effect, layer.place(effect), workspace, home)


def other_mistakes(layers: Iterable[Layer]) -> list[str]:
    """Return a sentence for each mistake in the files of the layers that is not one of a rule."""
    sentences = []
    for layer in layers:
        mistakes = list(layer.problems)
        for key, value in layer.settings.items():
            if key in _EFFECTS and key != "allow":
                continue
            checked = {key: value if key not in _EFFECTS else []}  # an allow has no place in a managed policy
            try:
                permissions_of([layer._replace(settings=checked)])
            except ConfigError as mistake:
                mistakes.append(mistake.message)
        sentences += [visible(f"{layer.file or layer.name}: {mistake}") for mistake in mistakes]
    return sentences


def _try_rule(entry: Any, effect: Effect, source: str, workspace: str, home: str) -> TriedRule:
    text = entry.get("rule") if isinstance(entry, Mapping) else entry
    problem = ""
    try:
        read_rules([entry], effect, source=source, workspace=workspace, home=home)
    except ConfigError as error:
        problem = error.message
    return TriedRule(effect, str(text)[:_LENGTH_MAX], _count(entry), problem, source)


def _count(entry: Any) -> int:
    if not isinstance(entry, Mapping):
        return 0
    given = [entry.get(key, ()) for key in ("match", "not_match")]
    return sum(
        1 if isinstance(examples, str) else len(examples)
        for examples in given
        if isinstance(examples, (str, list, tuple))
    )
