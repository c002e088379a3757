"""`lyra pipeline`: check, run and draw pipelines declared in a file, and print the schema of such files.

Reads files through `lyra.kernel.pipelines.files` and runs them on a kernel; decides nothing itself. Agents come from a
Python file's functions, or, without one, from `echo`, which gives back what it was given: enough to see the way
a pipeline takes.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CommandGroup, Invocation, json_option
from lyra.cli.render import document, note, printable, report
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.core.envelope import Envelope
    from lyra.kernel.pipelines.declaration import PipelineConfig
    from lyra.kernel.pipelines.feeds import PipelineEvent


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Check, run and draw pipelines declared in TOML, YAML or JSON."""


@pipeline.command()
@click.argument("file")
@json_option
def check(*, file: str, as_json: bool) -> None:
    """Find every mistake in a pipeline file, with its line; warn of loops without a limit."""
    from lyra.kernel.pipelines.files import advice_for, check_file

    mistakes = check_file(file)
    advice = [] if mistakes else advice_for(file)
    if as_json:
        told = {
            "mistakes": [problem.to_data() for problem in mistakes],
            "warnings": [problem.to_data() for problem in advice],
        }
        document({"file": file, "ok": not mistakes, **told})
    elif not mistakes:
        for problem in advice:
            note(f"warning: {problem.message}\n  at {problem.place}\n  hint: {problem.hint}")
        click.echo(printable(f"{file}: ok"))
    else:
        from lyra.errors import CheckError, ParseError

        for problem in mistakes:
            kind = ParseError if problem.code == "parse" else CheckError
            error = kind(
                problem.message, file=problem.file, line=problem.line, column=problem.column, hint=problem.hint
            )
            report(error, debug=False)
    if mistakes:
        raise click.exceptions.Exit(2)


@pipeline.command()
@click.argument("file")
@click.option(
    "--input", "given", default="", metavar="TEXT|JSON", help="The input: a text, or an envelope's fields as JSON."
)
@click.option(
    "--agents", "agents_file", default=None, metavar="FILE.py", help="Python file whose functions are the agents."
)
@json_option
@click.pass_obj
def run(invocation: Invocation, /, *, file: str, given: str, agents_file: str | None, as_json: bool) -> None:
    """Run a pipeline in memory and show what happens."""
    from lyra.kernel.pipelines.files import load_file

    config = load_file(file)
    agents = _functions(agents_file, config) if agents_file is not None else {}
    work = _run(invocation, config, _envelope(given), agents, echo=agents_file is None, quiet=as_json)
    envelope, error = asyncio.run(work)
    reason = envelope.terminal_reason.value if envelope.terminal_reason is not None else ""
    if as_json:
        document({"pipeline": config.name, "reason": reason, "envelope": envelope.to_data()})
    else:
        click.echo(printable(f"{config.name}: {reason}"))
        for name, output in envelope.outputs.items():
            click.echo(printable(f"  {name}: {json.dumps(output, ensure_ascii=False, default=str)}"))
    if error is not None:
        raise error
    if envelope.terminal_reason is None or envelope.terminal_reason.outcome() != "completed":
        if envelope.termination_reason != reason:
            note(envelope.termination_reason)
        outcome = envelope.terminal_reason.outcome() if envelope.terminal_reason is not None else "failed"
        raise click.exceptions.Exit(4 if outcome == "bounds_exceeded" else 1)


@pipeline.command()
@click.argument("file")
@click.option("-o", "--output", "output", default=None, metavar="FILE.svg", help="Write the picture to a file.")
def graph(*, file: str, output: str | None) -> None:
    """Draw a pipeline as SVG."""
    from lyra.kernel.pipelines.files import load_file
    from lyra.kernel.pipelines.schema import svg

    picture = svg(load_file(file))
    if output is None:
        click.echo(picture, nl=False)
        return
    try:
        Path(output).write_text(picture, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}", key="output") from None
    note(f"wrote {output}")


@pipeline.command()
def schema() -> None:
    """Print the JSON Schema of pipeline files."""
    from lyra.kernel.pipelines.schema import json_schema

    document(json_schema())


# ------------------------------------------------------------------ running
async def _run(
    invocation: Invocation,
    config: PipelineConfig,
    envelope: dict[str, Any],
    agents: dict[str, Any],
    *,
    echo: bool,
    quiet: bool,
) -> tuple[Envelope, BaseException | None]:
    """Return the envelope at the end, and the error of the pipeline's process, such as the end of its time."""
    from lyra.kernel import Kernel
    from lyra.kernel.pipelines.routing import NodeKind
    from lyra.observe.exports import export_as_configured

    async with Kernel.from_config(invocation.config, store="memory") as kernel:
        export_as_configured(kernel)
        for name, agent in agents.items():
            kernel.register_agent(name, agent)
        if echo:
            for stage in config.agents:
                if stage.node_kind is NodeKind.AGENT:
                    kernel.register_agent(stage.agent_name, _echo(stage.required_output_fields))
        last: PipelineEvent | None = None
        async for event in kernel.execute_pipeline(config, envelope):
            last = event
            if event.type == "interrupt_raised":
                _answer(kernel, event.pid, event.data["interrupt"])
            if not quiet:
                _show(event)
        assert last is not None
        ended = await kernel.process(last.pid).wait()
        return last.envelope, ended.error


def _echo(fields: tuple[str, ...]) -> Any:
    async def agent(envelope: Envelope) -> dict[str, Any]:
        return {"input": envelope.raw_input, "after": list(envelope.outputs), **dict.fromkeys(fields, "")}

    return agent


def _show(event: Any) -> None:
    words = {
        "stage_started": "run",
        "stage_failed": "failed",
        "routing_decision": "→",
        "interrupt_raised": "asks",
        "bounds_exceeded": "stopped",
    }
    word = words.get(event.type)
    if word is None:
        return
    more = {
        "stage_failed": event.data.get("error", ""),
        "routing_decision": f"{event.data.get('target', '')} ({event.data.get('reason', '')})",
        "bounds_exceeded": event.data.get("reason", ""),
    }.get(event.type, "")
    note(f"{word:8} {event.stage} {more}".rstrip())


def _answer(kernel: Any, pid: str, interrupt: dict[str, Any]) -> None:
    """Put the pipeline's question to the terminal or the piped input; without either, cancel it."""
    question = printable(str(interrupt.get("question") or interrupt.get("kind")))
    asked = interrupt.get("kind"), interrupt.get("question")
    consent = interrupt.get("kind") == "confirmation"

    def resolve() -> None:
        waiting = kernel.orchestrator.get_session_state(pid).interrupts
        alike = [
            pending for pending in waiting if (pending["kind"], pending.get("question")) == asked
        ]  # branches may ask at once
        if not alike:
            return
        key = next((pending["id"] for pending in alike if pending.get("id")), None)
        if key is None:  # the runner has not come to ask yet
            kernel.loop.call_soon(resolve)
            return
        answer = _read_answer(question, consent=consent)
        if answer is not None:
            kernel.resolve_interrupt(key, answer)
            return
        note(f"{question} (there is no one here to answer)")
        kernel.interrupts._withdraw(key, "there is no one here to answer")
        if consent:
            kernel.orchestrator.terminate_session(pid, "user_cancelled", "there is no one here to answer")

    kernel.loop.call_soon(resolve)


def _read_answer(question: str, *, consent: bool) -> dict[str, Any] | None:
    """Return the answer typed at the terminal, or the next line of the piped input; None without either."""
    import sys

    if sys.stdin is not None and sys.stdin.isatty():
        if consent:
            return {"approved": click.confirm(question, err=True)}
        return {"text": click.prompt(question, err=True)}
    try:
        line = sys.stdin.readline().strip() if sys.stdin is not None else ""
    except OSError:
        return None
    if not line:
        return None
    note(f"{question} {printable(line)}")
    return {"approved": line.lower() in ("y", "yes")} if consent else {"text": line}


def _envelope(given: str) -> dict[str, Any]:
    if not given.lstrip().startswith("{"):
        return {"raw_input": given}
    try:
        data = json.loads(given)
    except json.JSONDecodeError as error:
        raise ConfigError(f"--input looks like JSON and is none: {error}", key="--input") from None
    return dict(data)


def _functions(file: str, config: PipelineConfig) -> dict[str, Any]:
    """Return what a Python file has under the names of the pipeline's agents: functions, or objects with a `run`."""
    import runpy
    import sys

    from lyra.kernel.pipelines.routing import NodeKind

    if not Path(file).is_file():
        raise ConfigError(f"there is no file {file}", key="--agents")
    folder = str(Path(file).resolve().parent)
    sys.path.insert(0, folder)  # as python itself does for a script: what lies beside it can be imported
    try:
        names = runpy.run_path(file, run_name="lyra_pipeline_agents")
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{file} cannot be run: {type(error).__name__}: {error}", key="--agents") from error
    finally:
        sys.path.remove(folder)
    functions = {}
    for name in (stage.agent_name for stage in config.agents if stage.node_kind is NodeKind.AGENT):
        functions[name] = names.get(name)
        if isinstance(functions[name], type) or not (
            callable(functions[name]) or callable(getattr(functions[name], "run", None))
        ):
            hint = f"write async def {name}(envelope): …"
            raise ConfigError(f"{file} has no function {name!r}", hint=hint, key="--agents")
    return functions
