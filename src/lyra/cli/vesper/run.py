"""`vesper run FILE` and `vesper test FILE…`: execute a node, or its test cases, on one path or on both; `vesper
divergences NODE`: the inputs for which the two paths of a node gave different answers."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.arguments import dollars
from lyra.cli.render import document, moment, printable, show_progress
from lyra.cli.render import document as print_document
from lyra.cli.vesper.node_files import (
    agent_options,
    agents_of,
    describe_missing_rights,
    input_options,
    inputs_of,
    load_stored_nodes,
    node_files,
    node_named,
    runtime_around,
    runtime_of,
    runtime_options,
    say_problems,
    source_of,
)
from lyra.errors import ConfigError, LyraError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.nodes import Node
    from lyra.vesper.repository.folders import Repository
    from lyra.vesper.runtime.runtime import Runtime
    from lyra.vesper.runtime.stepping import ProfiledPath
    from lyra.vesper.values.outcome import Outcome


@click.command(cls=CliCommand, name="divergences")
@click.argument("node")
@json_option
@click.pass_context
def divergences(ctx: click.Context, /, *, node: str, as_json: bool) -> None:
    """List the divergences of NODE (a file or an id) as it is now: the input, both outcomes, where they part, and a
    command that reproduces it. The exit code is 1 if there are any."""
    import msgspec

    loaded = node_named(node)
    with runtime_around(ctx.ensure_object(Invocation), loaded) as runtime:
        program = runtime.program(loaded)
        kept = [msgspec.to_builtins(row) for row in runtime.evidence(loaded).found]
    rows = [divergence_data(row, program, node) for row in kept]
    if as_json:
        document({"node": program.node_id, "divergences": rows})
    elif not rows:
        click.echo(printable(f"{program.node_id}: no divergence is known"))
    else:
        for number, row in enumerate(rows, 1):
            click.echo(printable(f"{number}. {moment(row['time'])}, {row['mode']}"))
            for line in divergence_lines(row):
                click.echo(printable(f"   {line}"))
    ctx.exit(1 if rows else 0)


def divergence_data(row: Mapping[str, Any], program: NodeProgram, name: str) -> dict[str, Any]:
    """Return a kept divergence as JSON; `name` is the file or the id by which a command finds the node."""
    from lyra.vesper.values.json_values import from_json, json_shape

    differences, step = row["differences"], row.get("step", "")
    path = differences[0]["path"] if differences else "root"
    given = None if row["inputs"] is None else json_shape(from_json(row["inputs"]))
    return {
        "input": given,
        **{side: _shape(row.get(side)) for side in ("python", "direct")},
        "where": f"step {step}: {path}" if step else path,
        "differences": differences,
        "reproduce": _command(row, given, program, name),
        "reproducible": row["reproducible"],
        "mode": row["mode"],
        "time": row.get("time", 0.0),
        "trace_id": row["trace_id"],
    }


def _shape(end: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return how a path ended, as JSON for readers."""
    from lyra.vesper.values.json_values import from_json, json_shape

    return None if end is None else {**end, "outputs": json_shape(from_json(end["outputs"]))}


def _command(row: Mapping[str, Any], given: Any, program: NodeProgram, name: str) -> str:
    if given is None:
        return f"vesper verify {shlex.quote(name)}"
    if not program.pure and row["trace_id"]:
        return f"vesper replay {row['trace_id']}"  # performs nothing again
    return f"vesper run {shlex.quote(name)} --path both --input-json {shlex.quote(json.dumps(given))}"


def divergence_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a divergence as text."""
    yield f"input      {json.dumps(row['input'], ensure_ascii=False)}"
    for side in ("python", "direct"):
        yield f"{side:<9}  {_ending(row[side])}"
    yield f"where      {row['where']}"
    for difference in row["differences"]:
        yield f"           {difference['path']}: {difference['python']} | {difference['direct']}"
    yield f"reproduce  {row['reproduce']}"


def _ending(end: Mapping[str, Any] | None) -> str:
    if end is None:
        return "not kept"
    if end["error"] is not None:
        return f"{end['status']} {end['error']['code']}: {end['error']['message']}"
    return f"{end['status']} {json.dumps(end['outputs'], ensure_ascii=False)}"


_EXITS: Final = {"capability_denied": 3, "not_configured": 2}  # by the code of an error; others are 1
_MODE_OF_PATH: Final = {"python": "python_only", "direct": "direct_only", "both": "dual_verify"}


@click.command(cls=CliCommand, name="run")
@click.argument("file")
@input_options
@click.option("--path", "path_name", type=click.Choice(list(_MODE_OF_PATH)), help="Run on this path, or on both.")
@click.option("--mode", metavar="MODE", help="The mode for this one run.")
@click.option("--profile", "is_profiled", is_flag=True, help="Also show how long each step took, on one path.")
@runtime_options
@agent_options
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    file: str,
    pairs: tuple[str, ...],
    document: str | None,
    path_name: str | None,
    mode: str | None,
    is_profiled: bool,
    database: str | None,
    providers: tuple[str, ...],
    grants: tuple[str, ...],
    model: str | None,
    budget: str | None,
    as_json: bool,
) -> None:
    """Execute the node of FILE (or an id) and print its outputs. It can call the nodes beside FILE, those of
    `nodes/` and those of the store. If both paths run and differ, the differences are shown and the exit code is 1."""
    from lyra.vesper.repository.folders import repository_around

    if is_profiled and (mode or path_name == "both"):
        raise ConfigError("--profile measures one path", hint="say --path python or --path direct", key="--profile")
    node = node_named(file)
    inputs = inputs_of(node, pairs, document)
    profiled = _make_profiled_path(path_name or "python") if is_profiled else None
    chosen = mode or (_MODE_OF_PATH[path_name] if path_name else None)
    nodes = repository_around(node.file)
    diverged: list[Mapping[str, Any]] = []  # divergences of the node, and of those that it calls
    more: dict[str, Any] = {"nodes": nodes, "budget": None if budget is None else dollars(budget)}
    with runtime_of(ctx.ensure_object(Invocation), database, providers, grants, **more) as runtime:
        runtime.world.agents.update(agents_of(node, nodes, model))
        runtime.on_event(lambda event: diverged.append(event.data), ["vesper.diverged"])
        used = chosen or runtime.mode(node)
        outcome = runtime.execute(node, inputs, chosen, trace=True, watched=profiled)
        runtime.settle()
        program = runtime.program(node)
        divergences = [
            divergence_data(row, program, file)
            if row["node"] == program.node_id
            else divergence_data(row, runtime.program(runtime.find_node(row["node"]) or node), row["node"])
            for row in diverged
        ]
    if outcome.error is not None and not as_json:
        for sentence in describe_missing_rights(node, nodes, grants):
            click.echo(printable(f"warning: {sentence}"), err=True)
    profile = [] if profiled is None else profiled.rows()
    if as_json:
        extra = {"profile": profile} if is_profiled else {}
        print_document({**_data(outcome, path_name, used), "divergences": divergences, **extra})
    else:
        _show(outcome)
        for row in profile:
            times = f"{row['milliseconds']:10.3f} ms {row['share']:7.1%} {row['count']:8}×"
            click.echo(printable(f"{times}  {row['step']}"), err=True)
    for row in divergences:
        click.echo("error[divergence]: the two paths of the node gave different answers", err=True)
        for line in divergence_lines(row):
            click.echo(printable(f"  {line}"), err=True)
    code = "" if outcome.error is None else outcome.error.code
    ctx.exit(1 if divergences else _EXITS.get(code, 1) if code else 0)


def _make_profiled_path(name: str) -> ProfiledPath:
    from lyra.vesper.runtime.stepping import ProfiledPath

    return ProfiledPath(name)


def _data(outcome: Outcome, path_name: str | None, mode: str) -> dict[str, Any]:
    from lyra.vesper.values.json_values import json_shape

    error = None
    if outcome.error is not None:
        error = {"code": outcome.error.code, "message": outcome.error.message, "phase": outcome.error.phase}
        error["fields"] = json_shape(outcome.error.fields)
    return {
        "status": outcome.status,
        "outputs": json_shape(outcome.outputs),
        "error": error,
        "path": path_name or outcome.path,
        "mode": mode,
        "trace_id": outcome.trace_id,
        "unverifiable": list(outcome.unverifiable),
    }


def _show(outcome: Outcome) -> None:
    from lyra.vesper.values.json_values import json_shape

    for text in outcome.unverifiable:
        click.echo(printable(f"warning: could not be judged: {text}"), err=True)
    if outcome.error is not None:
        message = f": {outcome.error.message}" if outcome.error.message else ""
        click.echo(printable(f"error[{outcome.error.code}]{message}"), err=True)
    more = {} if outcome.error is None else outcome.error.fields
    fields = {name: value for name, value in more.items() if name not in ("error_code", "code", "message")}
    for name, value in json_shape({**outcome.outputs, **fields}).items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        click.echo(printable(f"{name}: {text}"))


# ---------------------------------------------------------------- tests

PROPERTY_INPUTS = 200
SEARCHED_FOR_EACH = 10  # inputs of the search, for each of a property test
NO_TESTS_HINT = "write test_cases or property_tests under `testing`, or say --allow-no-tests"
NOT_SHOWN_HINT = "it refused them all, which shows nothing: add a test case with inputs that it accepts, or raise -n"


class CaseRun(NamedTuple):
    """A test that ran. Property tests have what they tried: numbers of inputs, and those that broke the property."""

    file: str
    name: str
    problems: list[str]
    tried: dict[str, Any] | None = None

    @property
    def is_shown(self) -> bool:
        """False for a property that no accepted input was tried with."""
        return self.tried is None or bool(self.tried["shown"])

    @property
    def ending(self) -> str:
        return "FAILED" if self.problems else "passed" if self.is_shown else "not shown"

    def to_data(self) -> dict[str, Any]:
        row = {"file": self.file, "name": self.name, "passed": self.ending == "passed", "problems": self.problems}
        return row if self.tried is None else {**row, "property": self.tried}


@click.command(cls=CliCommand, name="test")
@click.argument("files", nargs=-1)
@click.option(
    "-n",
    "number",
    type=click.IntRange(1, 100_000),
    default=PROPERTY_INPUTS,
    show_default=True,
    help=f"Inputs that each property test tries; the search tries {SEARCHED_FOR_EACH} times as many.",
)
@click.option("--no-search", is_flag=True, help="Do not search for inputs with which a node breaks its own contract.")
@click.option("--allow-no-tests", is_flag=True, help="Let a node pass that has no tests.")
@runtime_options
@agent_options
@json_option
@click.pass_context
def test(
    ctx: click.Context,
    /,
    *,
    files: tuple[str, ...],
    number: int,
    no_search: bool,
    allow_no_tests: bool,
    database: str | None,
    providers: tuple[str, ...],
    grants: tuple[str, ...],
    model: str | None,
    budget: str | None,
    as_json: bool,
) -> None:
    """Run the test cases and property tests of FILES on both paths, and search for inputs with which a node breaks its
    own contract.

    FILES are .vsp files, or folders of them; this folder by default. Each test case acts once: the direct path is given
    the answers that the Python path got, and both must ask and end alike. A node can call those that `vesper run` finds
    for it. An accepted input that ends with a broken postcondition or invariant, an overflow, a division by zero, a
    loop that runs too often, a type error or a missing output is a failure, and so is a node that has no tests.
    """
    from lyra.vesper.nodes import load
    from lyra.vesper.repository.folders import Repository, repository_around

    nodes = Repository()
    more: dict[str, Any] = {"nodes": nodes, "budget": None if budget is None else dollars(budget)}
    more |= {"store": "memory", "results": "memory"}  # a run has keys, states of machines and results of its own
    invocation = ctx.ensure_object(Invocation)
    stored = load_stored_nodes(invocation)
    done: list[CaseRun] = []
    diverged: list[Mapping[str, Any]] = []
    violations: list[dict[str, Any]] = []
    warnings: list[str] = []
    wrong = 0
    with runtime_of(invocation, database, providers, grants, **more) as runtime:
        runtime.on_event(lambda event: diverged.append(event.data), ["vesper.diverged"])
        for node in stored.nodes.values():
            with suppress(LyraError):  # of an earlier version of Lyra, and not valid for this one
                runtime.add_node(node)
        for file in node_files(files or (".",)):
            try:
                source_of(file)
                node = load(file)
                nodes.move(repository_around(file).folders)
                runtime.world.agents.update(agents_of(node, nodes, model))
                warnings += [f"{file}: {sentence}" for sentence in _describe_gaps(node, nodes, grants)]
                if not (node.testing.test_cases or node.testing.property_tests):
                    problem = [] if allow_no_tests else [f"the node has no tests: {NO_TESTS_HINT}"]
                    done.append(CaseRun(str(file), "no tests", problem))
                done += _ran(runtime, str(file), node, diverged)
                done += _properties(str(file), node, number)
                if not no_search:
                    ran, broken, weak = _search(str(file), node, number * SEARCHED_FOR_EACH)
                    done += [ran] if ran.problems else []
                    violations += broken
                    warnings += weak
            except (SourceError, ConfigError) as error:
                wrong += 1
                say_problems(error)
    endings = Counter(ran.ending for ran in done)
    passed, failed, unshown = endings["passed"], endings["FAILED"], endings["not shown"]
    if as_json:
        rows = [ran.to_data() for ran in done]
        counts = {"passed": passed, "failed": failed, "not_shown": unshown}
        document({**counts, "tests": rows, "violations": violations, "warnings": warnings})
    else:
        for ran in done:
            click.echo(printable(f"{ran.ending}  {ran.file}: {ran.name}"))
            for line in (*ran.problems, *_describe_tries(ran)):
                click.echo(printable(f"    {line}"))
        for warning in warnings:
            click.echo(printable(f"warning: {warning}"), err=True)
        click.echo(f"{passed} passed, {failed} failed" + (f", {unshown} not shown" if unshown else ""))
    ctx.exit(2 if wrong else 1 if failed or unshown else 0)


def _describe_gaps(node: Node, nodes: Repository, grants: tuple[str, ...]) -> list[str]:
    """Return what the tests of a node cannot show: contracts that nothing judges, and calls that lack rights."""
    from lyra.vesper.check.contracts import describe_unjudged
    from lyra.vesper.check.judge import program_of

    unjudged = describe_unjudged(program_of(node))
    acts = any(case.answers is None for case in node.testing.test_cases)
    return [*unjudged, *(describe_missing_rights(node, nodes, grants) if acts else ())]


def _ran(runtime: Runtime, file: str, node: Node, diverged: list[Mapping[str, Any]]) -> Iterator[CaseRun]:
    """Yield how the test cases end. Each acts once: where the paths differ, only the outcome of the first is known.
    `diverged` takes the divergences that the runtime tells, of the node and of those that it calls."""
    from lyra.vesper.evidence.properties import problems_of, run_with_answers

    program = runtime.program(node)
    for number, case in enumerate(node.testing.test_cases, 1):
        if case.answers is not None:
            outcome, problems = run_with_answers(program, case.inputs, case.answers)
            problems += problems_of(case.expected_output, outcome, (*program.success, *program.error))
            yield CaseRun(file, case.name or f"case {number}", problems)
            continue
        diverged.clear()
        outcome = runtime.execute(node, case.inputs, "dual_verify")
        runtime.settle()
        words = {row["node"]: f"the paths of {row['node']} differ" for row in diverged} | {
            node.node_id: "the paths differ"
        }
        differences = [f"{words[row['node']]}: {problem}" for row in diverged for problem in row["differences"]]
        problems = problems_of(case.expected_output, outcome, (*program.success, *program.error))
        lines = [f"python: {problem}" for problem in problems] if differences else problems  # else both paths say so
        yield CaseRun(file, case.name or f"case {number}", lines + differences)


def _search(file: str, node: Node, number: int) -> tuple[CaseRun, list[dict[str, Any]], list[str]]:
    """Search for inputs that break the node's contract; return the result, these inputs, and warnings."""
    from lyra.cli.vesper.evidence import path_divergence_data, violation_data, violation_lines
    from lyra.vesper.check.judge import program_of
    from lyra.vesper.evidence.differential import test_node, weak_evidence
    from lyra.vesper.repository.folders import repository_around

    program = program_of(node)
    with show_progress(f"of {number} inputs compared: {file}") as progress:
        report = test_node(node, number, find=repository_around(node.file).find, progress=progress)
    rows = [violation_data(violation, program) for violation in report.violations]
    problems = [line for row in rows for line in violation_lines(row)]
    kept = [path_divergence_data(row, program) for row in report.kept]
    problems += [f"the paths differ with {row['inputs']}: {row['differences']}" for row in kept]
    warnings = [f"{file}: {warning}" for warning in weak_evidence(report)]
    return CaseRun(file, f"contract, {report.counts.accepted} accepted inputs", problems), rows, warnings


def _properties(file: str, node: Node, number: int) -> Iterator[CaseRun]:
    from lyra.vesper.check.judge import program_of
    from lyra.vesper.evidence.properties import check_properties
    from lyra.vesper.runtime.privacy import redact_fields
    from lyra.vesper.values.redaction import Redaction

    program, nothing = program_of(node), Redaction(())  # sensitive inputs are hidden by their names
    for result in check_properties(node, number):
        inputs = None if result.inputs is None else [redact_fields(program, shown, nothing) for shown in result.inputs]
        counts = {"checked": result.checked, "accepted": result.accepted, "shown": result.is_shown}
        tried = {**counts, "inputs": inputs}
        yield CaseRun(file, result.name, list(result.problems), tried)


def _describe_tries(ran: CaseRun) -> list[str]:
    """Return lines about a property test: the inputs that broke it, or how many it tried."""
    import json

    if ran.tried is None:
        return []
    if ran.tried["inputs"] is not None:
        return [f"with {json.dumps(inputs, ensure_ascii=False)}" for inputs in ran.tried["inputs"]]
    counts = f"{ran.tried['checked']} inputs, {ran.tried['accepted']} of them accepted"
    return [counts] if ran.is_shown else [counts, NOT_SHOWN_HINT]
