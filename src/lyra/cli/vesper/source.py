"""`vesper validate`, `prove`, `compile`, `show` and `fmt`: nodes as they are written."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from lyra.cli.app import CliCommand, Invocation, json_option, require_lsp
from lyra.cli.render import document, note, printable, show_progress
from lyra.cli.vesper.node_files import list_callees, node_files, node_named, say_problems, source_of, store_of
from lyra.core.secrets.secret import mask_url
from lyra.core.user_folders import data_folder
from lyra.errors import ConfigError, LyraError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lyra.vesper.ir import NodeInput, NodeProgram
    from lyra.vesper.loading import Issue
    from lyra.vesper.nodes import Node
    from lyra.vesper.nodes.model import StepDeclaration
    from lyra.vesper.prove.prover import ProofResult


_BROKEN_SHOWN: Final = 5  # files that a hint names
_REASON_CHARS_MAX = 50  # of a reason that is said again on each line
_INPUT_CHARS_MAX = 2_000  # of an input that is printed in a text; --json has all of it


@click.command(cls=CliCommand, name="validate")
@click.argument("files", nargs=-1, required=True)
@click.option("--strict", is_flag=True, help="Count warnings as errors.")
@click.option("--prove", "is_proved", is_flag=True, help="Prove the contracts of valid nodes, too, as `vesper prove`.")
@json_option
@click.pass_context
def validate(ctx: click.Context, /, *, files: tuple[str, ...], strict: bool, is_proved: bool, as_json: bool) -> None:
    """Find all mistakes in FILES (.vsp files, or folders of them) without running them."""
    from lyra.vesper.check.judge import has_errors
    from lyra.vesper.loading import render_issue

    valid, refuted, paths = True, False, node_files(files)
    rows: list[dict[str, Any]] = []
    proofs: list[dict[str, Any]] = []
    for file in paths:
        text, issues = _issues_of(file, strict=strict)
        is_right = not has_errors(issues)
        valid = valid and is_right
        rows += [{"file": str(file), **_issue_data(issue)} for issue in issues]
        if not as_json:
            for issue in issues:
                click.echo(printable(render_issue(issue, str(file), text)), err=True)
            if is_right:
                click.echo(printable(f"{file}: valid") if len(paths) > 1 else "valid")
        if is_proved and is_right:
            results = prove_node(node_named(str(file)))
            refuted = refuted or any(result.verdict == "refuted" for result in results)
            proofs += results_data(str(file), results)
            if not as_json:
                print_results(str(file), results)
    if as_json:
        document({"valid": valid, "issues": rows, **({"results": proofs} if is_proved else {})})
    ctx.exit(2 if not valid else 1 if refuted else 0)


def _issues_of(file: Path, *, strict: bool) -> tuple[str, list[Issue]]:
    """Return the text of a file and all remarks on it; one remark where it cannot be read."""
    from lyra.vesper.check.judge import check_text, lower_unchecked
    from lyra.vesper.loading import ERROR, Issue
    from lyra.vesper.repository.folders import repository_around

    try:
        text, name = source_of(file)
    except LyraError as error:
        line = int(error.fields.get("line") or 1)
        return "", [Issue(severity=ERROR, code="unreadable", message=error.message, line=line)]

    nodes = repository_around(file)

    def callee(node_id: str) -> NodeProgram | None:
        node = nodes.find(node_id)
        return None if node is None else lower_unchecked(node)

    issues = check_text(text, name, strict=strict, callees=callee)
    if not any(issue.code == "unknown_node" for issue in issues):
        return text, issues
    store = mask_url(store_of(click.get_current_context().ensure_object(Invocation)))
    searched = f"searched: {', '.join(map(str, nodes.folders))}; a run also finds it in the store {store}"
    wrong = ", ".join(item.file for item in nodes.broken[:_BROKEN_SHOWN] if Path(item.file) != file)
    searched += f"; these files have mistakes: {wrong}" if wrong else ""
    return text, [
        msgspec.structs.replace(issue, hint=f"{issue.hint}; {searched}") if issue.code == "unknown_node" else issue
        for issue in issues
    ]


def _issue_data(issue: Issue) -> dict[str, Any]:
    data = {name: getattr(issue, name) for name in ("severity", "code", "message", "path", "line", "column")}
    return {**data, "hint": issue.hint or None}


@click.command(cls=CliCommand, name="compile")
@click.argument("file")
@click.option("-o", "--output", metavar="FILE", help="Where to write; by default beside FILE, with the ending .py.")
def compile_(*, file: str, output: str | None) -> None:
    """Write the generated Python of a node: a module that runs on its own where lyra-agents is installed."""
    from lyra.vesper.check.judge import program_of
    from lyra.vesper.python.generate import source

    text = source(program_of(node_named(file)))
    target = Path(output) if output else Path(file).with_suffix(".py")
    if output != "-":
        target.write_text(text, encoding="utf-8")
        note(f"wrote {target}")
    else:
        click.echo(text, nl=False)


@click.command(cls=CliCommand, name="show")
@click.argument("file")
@click.option("--graph", "is_picture", is_flag=True, help="Draw the steps as a picture: SVG, on stdout.")
@click.option("-o", "--output", metavar="FILE", help="With --graph: where to write the picture.")
@json_option
def show(*, file: str, is_picture: bool, output: str | None, as_json: bool) -> None:
    """Show what a node takes, gives, promises and needs."""
    from lyra.vesper.check.judge import program_of

    if is_picture and as_json:
        raise ConfigError("--graph and --json exclude each other", key="--graph")
    if output is not None and not is_picture:
        raise ConfigError("--output is where --graph writes", hint="add --graph", key="--output")
    node = node_named(file)
    program = program_of(node)
    if is_picture:
        _write_picture(node, output)
        return
    data = _description(node, program)
    if as_json:
        document(data)
        return
    click.echo(printable(f"{data['node_id']} ({data['type']}): {data['intent']}"))
    for title in [key for key, rows in data.items() if isinstance(rows, list)]:
        rows = data[title]
        if rows:
            click.echo(f"{title.replace('_', ' ')}:")
            for row in rows:
                click.echo(printable(f"  {row}"))
    click.echo("acts outside" if not data["pure"] else "acts on nothing outside")


def _write_picture(node: Node, output: str | None) -> None:
    from lyra.vesper.format.picture import draw_node

    picture = draw_node(node)
    if output is None or output == "-":
        click.echo(picture, nl=False)
        return
    try:
        Path(output).write_text(picture, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}", key="--output") from None
    note(printable(f"wrote {output}"))


def _input_line(entry: NodeInput) -> str:
    """Return an input with its type, its default and its constraints."""
    from msgspec import UNSET

    from lyra.vesper.values.json_values import json_shape
    from lyra.vesper.values.types import describe

    words = [f"{entry.name}: {describe(entry.type)}"]
    if entry.default is not UNSET:
        words.append(f"default {json.dumps(json_shape(entry.default), ensure_ascii=False)}")
    elif not entry.required:
        words[0] += " (optional)"
    return ", ".join([*words, *(condition.text for condition in entry.constraints)])


def _step_lines(steps: Iterable[StepDeclaration], indent: str = "") -> Iterator[str]:
    """Yield the steps by name and operation, those inside a step further in, under the name of their block."""
    for step in steps:
        yield f"{indent}{step.name}: {step.operation}"
        for block, inner in step.blocks.items():
            further = f"{indent}  "
            if inner and block != "steps":
                yield f"{further}{block}:"
                further += "  "
            yield from _step_lines(inner, further)


def _description(node: Node, program: NodeProgram) -> dict[str, Any]:
    from lyra.vesper.repository.folders import repository_around
    from lyra.vesper.values.types import describe

    return {
        "node_id": program.node_id,
        "type": program.kind,
        "intent": program.intent,
        "digest": program.digest,
        "inputs": [_input_line(entry) for entry in program.inputs],
        "success": [f"{entry.name}: {describe(entry.type)}" for entry in program.success],
        "error": [f"{entry.name}: {describe(entry.type)}" for entry in program.error],
        "preconditions": [contract.text for contract in program.preconditions],
        "postconditions": [contract.text for contract in program.postconditions],
        "invariants": [contract.text for contract in program.invariants],
        "steps": list(_step_lines(node.flow)),
        "needs": list(program.capabilities),
        "called_nodes_need": [
            f"{right} ({callee.node_id})"
            for callee in list_callees(node, repository_around(node.file))
            for right in callee.security.capabilities_required
        ],
        "pure": program.pure,
    }


@click.command(cls=CliCommand, name="fmt")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 if a file has another layout.")
@click.option("--stdout", "to_stdout", is_flag=True, help="Print the formatted text; change no file.")
@click.pass_context
def fmt(ctx: click.Context, /, *, files: tuple[str, ...], only_check: bool, to_stdout: bool) -> None:
    """Lay out FILEs (.vsp files, or folders of them) in the one way; what they mean and their comments stay."""
    from lyra.vesper.format.layout import format_text

    is_broken = differs = False
    for path in node_files(files):
        try:
            text, name = source_of(path)
            result = format_text(text, name)
        except (SourceError, ConfigError) as error:
            say_problems(error)
            is_broken = True
            continue
        if to_stdout:
            click.echo(result, nl=False)
        is_changed = result.encode() != path.read_bytes()
        differs = differs or is_changed
        if is_changed and only_check:
            note(printable(f"{path} has another layout"))
        elif is_changed and not to_stdout:
            path.write_text(result, encoding="utf-8", newline="\n")
            note(printable(f"formatted {path}"))
    ctx.exit(2 if is_broken else 1 if only_check and differs else 0)


@click.command(cls=CliCommand, name="lsp")
@click.pass_context
def lsp(ctx: click.Context, /) -> None:
    """Run the language server for .vsp files on stdin and stdout.

    An editor starts it; see the how-to page "Write Vega and Vesper in an editor". Needs the lsp extra.
    """
    require_lsp()
    from lyra.lsp.server import serve
    from lyra.vesper.lsp.language import VesperLanguage

    ctx.exit(serve(VesperLanguage()))


@click.command(cls=CliCommand, name="prove")
@click.argument("node")
@json_option
@click.pass_context
def prove(ctx: click.Context, /, *, node: str, as_json: bool) -> None:
    """Prove the contracts of NODE (a file or an id) for all inputs, or find an input that breaks one.

    Each contract, overflow, division, type error and output is proved, refuted by an input that was run, or unknown
    with the reason. Exit code 1 if one is refuted. Needs z3: pip install 'lyra-agents[prove]'.
    """
    results = prove_node(node_named(node))
    if as_json:
        document({"results": [msgspec.to_builtins(result) for result in results]})
    else:
        print_results(node, results)
    ctx.exit(1 if any(result.verdict == "refuted" for result in results) else 0)


def prove_node(node: Node) -> list[ProofResult]:
    from lyra.vesper.prove import prover

    with show_progress(f"questions decided: {node.node_id}") as progress:
        return prover.prove(node, folder=data_folder() / "proofs", progress=progress)


def print_results(name: str, results: list[ProofResult]) -> None:
    """Print a line for each result, and below a refuted one the input and the command that shows it."""
    first_lines: dict[str, str] = {}  # long reasons, each with the line that it stands in
    for result in results:
        where = f" (step {result.step})" if result.step and result.step != result.expression else ""
        reason = f": {result.reason}" if result.reason else ""
        if len(result.reason) > _REASON_CHARS_MAX:
            first = first_lines.setdefault(result.reason, f"{result.kind}: {result.expression}")
            reason = reason if first == f"{result.kind}: {result.expression}" else f": as for {first}"
        click.echo(printable(f"{result.verdict.upper():8} {result.kind}: {result.expression}{where}{reason}"))
        if result.input is not None:
            text = json.dumps(result.input, ensure_ascii=False)
            if len(text) > _INPUT_CHARS_MAX:
                click.echo(f"         with an input of {len(text)} characters; --json shows it")
                continue
            click.echo(printable(f"         with {text}"))
            click.echo(printable(f"         vesper run {shlex.quote(name)} --input-json {shlex.quote(text)}"))
    counts = [f"{sum(r.verdict == verdict for r in results)} {verdict}" for verdict in ("proved", "refuted", "unknown")]
    click.echo(", ".join(counts))


def results_data(file: str, results: list[ProofResult]) -> list[dict[str, Any]]:
    return [{"file": file, **msgspec.to_builtins(result)} for result in results]
