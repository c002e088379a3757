"""`vesper verify`, `confidence`, `status`, `mode`, `audit`: what shows that both paths agree, and what follows from
it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document, moment, printable, show_progress, table
from lyra.cli.vesper.node_files import node_named, runtime_around, runtime_of
from lyra.errors import ConfigError
from lyra.vesper.values.limits import SAMPLES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lyra.vesper.evidence.differential import ComparisonReport, PathDivergence, Violation
    from lyra.vesper.evidence.state import NodeEvidence
    from lyra.vesper.ir import NodeProgram


SAMPLES_DEFAULT = 1_000


def _data(evidence: NodeEvidence, min_successes: int) -> dict[str, Any]:
    from lyra.vesper.evidence.modes import highest_mode

    return {
        "node": evidence.node_id,
        "digest": evidence.digest,
        "mode": evidence.mode,
        "allowed": highest_mode(evidence, min_successes),
        "compared": evidence.compared,
        "distinct": evidence.distinct,
        "accepted": evidence.accepted,
        "successes": evidence.successes,
        "divergences": evidence.divergences,
        "confidence": evidence.confidence,
        "unreached": evidence.unreached,
        "unreachable": evidence.unreachable,
        "complete": evidence.complete,
        "blocked": evidence.blocked,
        "breaches": evidence.breaches,
        "executions": evidence.executions,
        "errors": evidence.errors,
    }


def violation_data(violation: Violation, program: NodeProgram) -> dict[str, Any]:
    """Return an input with which a node breaks its own contract, as JSON, without sensitive values."""
    from lyra.vesper.check.derived import find_hidden_names
    from lyra.vesper.evidence.answers import names_in
    from lyra.vesper.runtime.privacy import readable_inputs, redaction_of
    from lyra.vesper.values.json_values import json_shape

    contracts = [row for row in (*program.postconditions, *program.invariants) if row.text == violation.expression]
    is_hidden = any(find_hidden_names(program) & names_in(contract.expression) for contract in contracts)
    head = {"node": program.node_id, "kind": violation.kind, "expression": violation.expression}
    made_up = redaction_of(program, violation.input).value(json_shape(violation.answers))
    sides = {"sides": list(violation.sides)} if violation.sides and not is_hidden else {}
    more = {**sides, **({"made_up_answers": made_up} if made_up else {})}
    return {**head, "input": readable_inputs(program, violation.input), **more}


def path_divergence_data(divergence: PathDivergence, program: NodeProgram) -> dict[str, Any]:
    """Return an input with which the paths differ, as JSON, without sensitive values."""
    from lyra.vesper.runtime.privacy import readable_inputs, redact_differences, redaction_of

    redaction = redaction_of(program, divergence.shrunk)
    differences = redact_differences(program, divergence.differences, redaction)
    return {"inputs": readable_inputs(program, divergence.shrunk), "differences": differences}


def violation_lines(row: Mapping[str, Any]) -> Iterator[str]:
    yield f"the node breaks its contract: {row['kind']}: {row['expression']}"
    yield f"  with {json.dumps(row['input'], ensure_ascii=False, default=str)}"
    for side in row.get("sides", ()):
        yield f"  where {side}"
    if row.get("made_up_answers"):
        answers = json.dumps(row["made_up_answers"], ensure_ascii=False, default=str)
        yield f"  where the acts answered {answers} (made up, of the types that the node takes; a called node ran)"


@click.command(cls=CliCommand, name="confidence")
@click.argument("node")
@json_option
@click.pass_context
def confidence(ctx: click.Context, /, *, node: str, as_json: bool) -> None:
    """Show how sure it is that both paths of NODE (a file or an id) agree."""
    loaded = node_named(node)
    invocation = ctx.ensure_object(Invocation)
    with runtime_around(invocation, loaded) as runtime:
        data = _data(runtime.evidence(loaded), invocation.config.vesper.min_successes)
    if as_json:
        document(data)
        return
    click.echo(printable(f"{data['node']}: {_confidence_text(data)}"))
    click.echo(f"  {_counts(data)}; mode {data['mode']}")
    for line in _reach_lines(data):
        click.echo(printable(f"  {line}"))
    click.echo(f"  {_describe_allowed(data)}")


@click.command(cls=CliCommand, name="mode")
@click.argument("node")
@click.argument("mode_name", metavar="[MODE]", required=False)
@click.option("--force", is_flag=True, help="Also without the evidence that the mode needs.")
@json_option
@click.pass_context
def mode(ctx: click.Context, /, *, node: str, mode_name: str | None, force: bool, as_json: bool) -> None:
    """Show the mode of NODE, or change it to MODE.

    A promotion that the evidence does not allow is refused with exit code 1: where a step that may be reached was not,
    where fewer distinct inputs succeeded than vesper.min_successes says, or where the confidence is too low.
    """
    from lyra.vesper.evidence.modes import mode_named

    loaded = node_named(node)
    invocation = ctx.ensure_object(Invocation)
    with runtime_around(invocation, loaded) as runtime:
        if mode_name is not None:
            mode_named(mode_name)
            try:
                runtime.set_mode(loaded, mode_name, force=force)
            except ConfigError as error:
                click.echo(printable(error.render()), err=True)
                ctx.exit(1)
        evidence = runtime.evidence(loaded)
    if as_json:
        document({**_data(evidence, invocation.config.vesper.min_successes), "history": evidence.history})
        return
    click.echo(evidence.mode + (" (forced)" if evidence.forced else ""))
    for change in evidence.history:
        click.echo(f"  {moment(change['time'])}  {change['from']} → {change['to']}: {change['why']}")


@click.command(cls=CliCommand, name="status")
@click.option("--format", "form", type=click.Choice(["text", "json", "prometheus"]), default="text", show_default=True)
@json_option
@click.pass_context
def status(ctx: click.Context, /, *, form: str, as_json: bool) -> None:
    """Show all nodes that were executed or compared, with mode and evidence."""
    from lyra.vesper.evidence.modes import describe_breach

    invocation = ctx.ensure_object(Invocation)
    with runtime_of(invocation, None, (), ()) as runtime:
        runtime.settle()
        known = [runtime.state.by_digest[digest] for _, digest in sorted(runtime.state.latest.items())]
        speeds = {
            node_id: {path: speed.to_data() for path, speed in paths.items()}
            for node_id, paths in runtime.state.speeds.items()
        }
    least = invocation.config.vesper.min_successes
    rows = [
        {**_data(evidence, least), "history": evidence.history, "speed": speeds.get(evidence.node_id, {})}
        for evidence in known
    ]
    if as_json or form == "json":
        document({"nodes": rows})
    elif form == "prometheus":
        from lyra.vesper.evidence.modes import prometheus

        click.echo(prometheus(known), nl=False)
    elif not rows:
        click.echo("no node was executed yet")
    else:
        titles = ("node", "mode", "allowed", "accepted", "successes", "divergences", "confidence")
        table(
            titles,
            [
                [
                    *(str(row[title]) for title in titles[:-1]),
                    _confidence(row)
                    + (" blocked" if row["blocked"] else "")
                    + (" breaks its contract" if row["breaches"] else ""),
                ]
                for row in rows
            ],
        )
        for row in rows:
            for breach in row["breaches"]:
                click.echo(printable(f"{row['node']} breaks its contract: {describe_breach(breach)}"))
            for path, speed in row["speed"].items():
                if speed["is_slower"]:
                    times = f"{speed['latest_ms']:.3f} ms, usually {speed['usual_ms']:.3f} ms"
                    click.echo(printable(f"{row['node']} is slower than its own past on the {path} path: {times}"))


@click.command(cls=CliCommand, name="verify")
@click.argument("node")
@click.option(
    "-n",
    "--num-tests",
    "count",
    type=click.IntRange(1, SAMPLES_MAX),
    help=f"Inputs to compare; without it, as many as the node's differential_tests say, else {SAMPLES_DEFAULT}.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the random inputs.")
@click.option(
    "--corpus",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of inputs that failed before: they are compared first, and new ones are added.",
)
@json_option
@click.pass_context
def verify(
    ctx: click.Context, /, *, node: str, count: int | None, seed: int, corpus: Path | None, as_json: bool
) -> None:
    """Compare both paths of NODE on inputs that are searched for, and keep what comes of it as evidence.

    Only distinct inputs past the entry checks count. A node with few inputs is tried on all of them, and those with
    which `vesper prove` refuted one of its contracts come first. The exit code is 1 where the paths differ, where an
    accepted input breaks the node's own contract (which also refuses each mode above shadow_direct), and where the node
    succeeded with no input. A node whose differential_tests are not enabled is compared only with -n. The store is
    opened when all is compared, so that other commands work meanwhile; after Ctrl-C, what was compared so far is kept.
    """
    from lyra.core.user_folders import data_folder
    from lyra.vesper.check.contracts import describe_unjudged
    from lyra.vesper.evidence.differential import test_node, weak_evidence
    from lyra.vesper.evidence.rooms import describe_few_texts
    from lyra.vesper.prove.prover import join_evidence, read_refuted_inputs
    from lyra.vesper.repository.folders import repository_around

    loaded = node_named(node)
    declared = loaded.testing.differential_tests
    if count is None and not declared.enabled:
        _say_disabled(loaded.node_id, as_json=as_json)
        return
    find = repository_around(loaded.file).find
    samples = count or declared.sample_size or SAMPLES_DEFAULT
    join_evidence()
    with show_progress(f"of {samples} inputs compared") as progress:
        report = test_node(
            loaded,
            samples,
            seed,
            find=find,
            cases=read_refuted_inputs(loaded, data_folder() / "proofs"),
            corpus=corpus,
            keep_interrupted=True,
            progress=progress,
        )
    invocation = ctx.ensure_object(Invocation)
    least = invocation.config.vesper.min_successes
    with runtime_around(invocation, loaded) as runtime:  # not before: a store has one owner
        runtime.add_report(loaded, report)
        data = _data(runtime.evidence(loaded), least)
        program = runtime.program(loaded)
    warnings = [*describe_unjudged(program), *weak_evidence(report)]
    if not data["complete"] and data["successes"] < least:
        remedy = describe_few_texts(program) or "raise -n"
        warnings.append(f"{data['successes']} distinct inputs succeeded so far, a promotion needs {least}: {remedy}")
    names = ("node", "compared", "distinct", "accepted", "successes", "divergences", "confidence", "unreached")
    more = ("unreachable", "complete", "mode", "allowed", "blocked", "breaches")
    shown = {
        **{name: data[name] for name in (*names, *more)},
        "violations": [violation_data(violation, program) for violation in report.violations],
        "warnings": warnings,
        "compared_now": report.compared,
        "divergences_now": report.divergences,
        "seconds": round(report.seconds, 3),
        "interrupted": report.interrupted,
        "kept": [path_divergence_data(row, program) for row in report.kept],
    }
    if as_json:
        document(shown)
    else:
        _show_report(report, data, shown["violations"], shown["kept"])
        for warning in warnings:
            click.echo(f"warning: {warning}", err=True)
    if report.interrupted:
        raise KeyboardInterrupt
    has_failed = report.divergences or report.violations or (not report.counts.successes and report.compared)
    ctx.exit(1 if has_failed else 0)


def _show_report(
    report: ComparisonReport, data: Mapping[str, Any], violations: list[dict[str, Any]], kept: list[dict[str, Any]]
) -> None:
    counts = report.counts
    click.echo(
        f"{report.compared} inputs compared in {report.seconds:.1f} s: {len(counts)} distinct, {counts.accepted} "
        f"accepted, {counts.successes} succeeded, {report.divergences} divergences"
    )
    for divergence in kept:
        click.echo(printable(f"  smallest input that shows it: {divergence['inputs']}"))
        for difference in divergence["differences"]:
            click.echo(printable(f"    {difference}"))
    for row in violations:
        for line in violation_lines(row):
            click.echo(printable(line))
    if not counts.successes:
        refused = "no input came past the entry checks" if not counts.accepted else "the node succeeded with no input"
        click.echo(f"error[nothing_shown]: {refused}: add a test case with inputs that it accepts", err=True)
    for line in _reach_lines(data):
        click.echo(printable(line))
    click.echo(f"{_confidence_text(data)} after {_counts(data)}; {_describe_allowed(data)}")


def _confidence(data: Mapping[str, Any]) -> str:
    """Return the confidence; below the number of inputs from which on there is one, it is not known."""
    from lyra.vesper.confidence import COMPARED_MIN

    is_known = data["accepted"] >= COMPARED_MIN or data["confidence"]
    return f"{data['confidence']:.5f}" if is_known else "unknown"


def _confidence_text(data: Mapping[str, Any]) -> str:
    """Return the confidence as text, or the reason why there is none yet."""
    from lyra.vesper.confidence import COMPARED_MIN

    text = f"confidence {_confidence(data)}"
    if not text.endswith("unknown"):
        return text
    return f"{text} (too few inputs: {data['accepted']} distinct ones were accepted, {COMPARED_MIN} are needed)"


def _describe_allowed(data: Mapping[str, Any]) -> str:
    reasons = ["a divergence"] * bool(data["blocked"]) + ["a broken contract"] * bool(data["breaches"])
    return f"the evidence allows {data['allowed']}" + (f" (blocked by {' and '.join(reasons)})" if reasons else "")


def _counts(data: Mapping[str, Any]) -> str:
    return (
        f"{data['compared']} comparisons, {data['accepted']} distinct accepted inputs, {data['successes']} successes, "
        f"{data['divergences']} divergences"
    )


def _reach_lines(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about the parts that were not reached, and those that cannot be."""
    if data["complete"]:
        yield "complete: all inputs that the node may accept were compared"
    if data["unreached"]:
        yield f"not reached: {', '.join(data['unreached'])}"
    for name, reason in data["unreachable"].items():
        yield f"unreachable: {name} ({reason})"


def _say_disabled(node_id: str, *, as_json: bool) -> None:
    if as_json:
        document({"node": node_id, "compared_now": 0, "enabled": False})
    else:
        click.echo(printable(f"{node_id}: its differential_tests are not enabled; nothing is compared without -n"))


# ---------------------------------------------------------------- audit


@click.command(cls=CliCommand, name="audit")
@click.argument("node", required=False)
@json_option
@click.pass_context
def audit(ctx: click.Context, /, *, node: str | None, as_json: bool) -> None:
    """Show the executions that left an audit row: all, or those of the node with the id NODE.

    The security.audit_level of a node says whether there is a row and what it has.
    """

    with runtime_of(ctx.ensure_object(Invocation), None, (), ()) as runtime:
        rows = [row for row in runtime.audit() if node is None or row["node"] == node]
    if as_json:
        document({"rows": rows})
    elif not rows:
        click.echo("no execution left an audit row")
    else:
        titles = ("time", "user", "action", "node", "path", "mode", "outcome", "trace_id")
        shown = [
            [
                moment(row["time"]),
                row.get("user", ""),
                row.get("action", ""),
                row["node"],
                row["path"],
                row["mode"],
                f"{row['outcome']} {row['code']}".strip(),
                row["trace_id"],
            ]
            for row in rows
        ]
        table(titles, shown)
