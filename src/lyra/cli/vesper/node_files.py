"""What the commands about nodes share: nodes by file or id, their inputs and values, and the runtime."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lyra.cli.app import Invocation
from lyra.cli.arguments import provider_addresses
from lyra.cli.render import printable
from lyra.core.clock import SystemClock
from lyra.core.own_files import make_folder
from lyra.core.secrets.secret import mask_url
from lyra.core.user_folders import data_folder
from lyra.errors import ConfigError, Conflict, LyraError, SourceError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.loading import Issue
    from lyra.vesper.nodes import Node
    from lyra.vesper.repository.folders import Repository
    from lyra.vesper.runtime.runtime import Runtime
    from lyra.vesper.values.outcome import Outcome
    from lyra.vesper.values.redaction import Redaction


_NAMED_MAX = 5  # files that an error names


def node_named(name: str) -> Node:
    """Return a node by its file, or by its id among the files of this folder and `nodes/`, then among those of the
    store."""
    from lyra.vesper.nodes import load
    from lyra.vesper.repository.folders import NODES_FOLDER, Repository

    path = Path(name)
    if path.suffix == ".vsp" or path.exists():
        return load(path)
    invocation = click.get_current_context().ensure_object(Invocation)
    node = Repository([Path(), Path(NODES_FOLDER)]).find(name) or load_stored_nodes(invocation).find(name)
    if node is None:
        store = mask_url(store_of(invocation))
        places = f"the folders {Path.cwd()} and {Path(NODES_FOLDER).absolute()}, the store {store}"
        raise ConfigError(f"no node {name!r} here", hint=f"name a .vsp file or an id; searched: {places}", key="NODE")
    return node


def only_node() -> str:
    """Return the one file of a node in this folder and `nodes/`, for a command that names none."""
    from lyra.vesper.repository.folders import NODES_FOLDER

    files = [str(file) for folder in (Path(), Path(NODES_FOLDER)) for file in sorted(folder.glob("*.vsp"))]
    if len(files) == 1:
        return files[0]
    few = ", ".join(files[:_NAMED_MAX]) + (", …" if len(files) > _NAMED_MAX else "")
    reason = f"there are {len(files)} here: {few}" if files else "there is no .vsp file in this folder or in `nodes/`"
    raise ConfigError("which node?", hint=f"name a file or an id; {reason}", key="NODE")


def input_options(function: Any) -> Any:
    """Add the options `-i NAME=VALUE` and `--input-json` to a command."""
    function = click.option(
        "-i",
        "--input",
        "pairs",
        metavar="NAME=VALUE",
        multiple=True,
        help="An input. VALUE is taken as it stands where the input is a text (string, enum, timestamp, bytes). Any "
        "other is read as JSON, such as 5, 2.50, true or '[1, 2]', and is text where it is no JSON.",
    )(function)
    return click.option("--input-json", "document", metavar="JSON", help="All inputs as one JSON object.")(function)


def inputs_of(node: Node, pairs: Iterable[str], document: str | None) -> dict[str, Any]:
    """Return the inputs of a command line. Numbers with a point are decimals; the value of a text input stays text."""
    inputs: dict[str, Any] = {}
    if document is not None:
        inputs = _object(document)
    texts = _text_inputs(node)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"{pair!r} is no NAME=VALUE", key="--input")
        if name in inputs:
            raise ConfigError(f"the input {name!r} is given twice", key="--input")
        inputs[name] = value if name in texts else _value(value)
    return inputs


def _text_inputs(node: Node) -> frozenset[str]:
    from lyra.vesper.check.judge import program_of
    from lyra.vesper.values.types import BYTES, STRING, TIMESTAMP, EnumType, without_null

    kinds = {entry.name: without_null(entry.type) for entry in program_of(node).inputs}
    return frozenset(
        name for name, kind in kinds.items() if kind in (STRING, TIMESTAMP, BYTES) or isinstance(kind, EnumType)
    )


def _object(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--input-json is no JSON: {error}", key="--input-json") from None
    if not isinstance(data, dict):
        raise ConfigError("--input-json is no object", hint="""such as '{"amount": 5}'""", key="--input-json")
    return data


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return text


def node_files(names: Iterable[str]) -> list[Path]:
    """Return the named files and the .vsp files of named folders. A missing file is an error when it is read."""
    files: list[Path] = []
    for name in names:
        path = Path(name)
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(path.rglob("*.vsp"))
        files += inside or [path]
    return files


def source_of(file: Path) -> tuple[str, str]:
    """Return the text and the name of a file that `node_files` gave; an error where it cannot be read."""
    from lyra.vesper.loading import read_source

    if file.is_dir():
        raise ConfigError(f"there is no .vsp file in the folder {str(file)[:200]!r}", key="FILE")
    return read_source(file)


def say_problems(error: LyraError) -> None:
    """Print the mistakes of a file on stderr as compilers do: place, sentence, the line with a caret, hint. All
    mistakes of the file are shown, also those after the one at which the command stopped."""
    from lyra.vesper.loading import ERROR, render_issue

    file = str(error.fields.get("file") or "")
    if not isinstance(error, SourceError) or not file:
        click.echo(printable(error.render()), err=True)
        return
    text, issues = _issues_of(error, file)
    for issue in [issue for issue in issues if issue.severity == ERROR] or issues:
        click.echo(printable(render_issue(issue, file, text)), err=True)


def _issues_of(error: SourceError, file: str) -> tuple[str, list[Issue]]:
    """Return the text of the file, empty where there is none (nodes of the store have none), and its mistakes."""
    from lyra.vesper.check.judge import check_text, has_errors
    from lyra.vesper.loading import ERROR, Issue

    problems = [msgspec.convert(problem, Issue) for problem in error.fields.get("problems") or ()]
    try:
        text = source_of(Path(file))[0]
    except LyraError:
        text = ""
    all_issues = check_text(text, file) if problems and text else []
    if has_errors(all_issues):
        return text, all_issues
    line, column = (int(error.fields.get(name) or 1) for name in ("line", "column"))
    own = Issue(severity=ERROR, code=error.code, message=error.message, hint=error.hint or "", line=line, column=column)
    return text, problems or [own]


# ---------------------------------------------------------------- setup

STORE_WAIT_S = 30.0  # for another command that has the store
_PAUSE_S = 0.1
_TOLD_S = 1.0  # from then on a person is told what is waited for


def runtime_options(function: Any) -> Any:
    """Add the options `--database`, `--provider` and `--grant` to a command."""
    function = click.option("--database", metavar="URL", help="sqlite:///FILE or postgresql://…")(function)
    function = click.option(
        "--provider", "providers", metavar="NAME=URL", multiple=True, help="The address behind a provider's name."
    )(function)
    return click.option(
        "--grant", "grants", metavar="CAPABILITY", multiple=True, help="A right that the node may use."
    )(function)


def agent_options(function: Any) -> Any:
    """`--model`, `--budget`."""
    function = click.option("--model", metavar="NAME", help="The model of the agents that the node asks.")(function)
    return click.option("--budget", metavar="$X", help="Stop before the agents spend more dollars than this.")(function)


def agents_of(node: Node, nodes: Repository, model: str | None) -> dict[str, Any]:
    """Return an agent of this model for each name that the node, or one that it calls, asks by; none without a
    model."""
    if model is None:
        return {}
    from lyra.agents.agent import Agent
    from lyra.vesper.check.judge import lower_unchecked
    from lyra.vesper.check.steps import parts_of
    from lyra.vesper.ir import Constant, EffectStep, MapOf

    parts = [part for item in (node, *list_callees(node, nodes)) for part in parts_of(lower_unchecked(item))]
    acts = [part for part in parts if isinstance(part, EffectStep) and isinstance(part.request, MapOf)]
    agents = [dict(act.request.entries).get("agent") for act in acts if isinstance(act.request, MapOf)]
    names = {str(agent.value) for agent in agents if isinstance(agent, Constant)}
    return {name: Agent(name, model=model) for name in sorted(names)}


def store_of(invocation: Invocation) -> str:
    """Return where modes and evidence are kept: the project's store, or a file in the user's data folder."""
    target = invocation.config.store_target()
    if target != "memory":
        return target
    folder = data_folder()
    make_folder(folder, private=True)
    return str(folder / "vesper.db")


def list_callees(node: Node, nodes: Repository) -> list[Node]:
    """Return the nodes that a node calls, and those that they call, as far as they are found."""
    from lyra.vesper.check.judge import lower_unchecked
    from lyra.vesper.evidence.keys import list_called_nodes

    callees, waiting = {node.node_id: node}, [node]
    while waiting:
        for name in list_called_nodes(lower_unchecked(waiting.pop())):
            callee = nodes.find(name)
            if callee is not None and callee.node_id not in callees:
                callees[callee.node_id] = callee
                waiting.append(callee)
    return list(callees.values())[1:]


def describe_missing_rights(node: Node, nodes: Repository, grants: Sequence[str]) -> list[str]:
    """Return a sentence for each node that is called and lacks rights: a rule about errors may hide that."""
    from lyra.vesper.check.effects import covering

    sentences = []
    for callee in list_callees(node, nodes):
        missing = [right for right in callee.security.capabilities_required if covering(right, grants) is None]
        if missing:
            options = " ".join(f"--grant {right}" for right in missing)
            sentences.append(f"{callee.node_id}, which {node.node_id} calls, lacks rights: say {options}")
    return sentences


def runtime_of(
    invocation: Invocation, database: str | None, providers: Iterable[str], grants: Iterable[str], **more: Any
) -> Runtime:
    """Return a runtime of the store; where another command has the store, as soon as that has ended."""
    from lyra.vesper.runtime.runtime import Runtime

    usual = {
        "store": more.get("store") or store_of(invocation),
        "results": invocation.config.vesper.results.reveal(),
        "min_successes": invocation.config.vesper.min_successes,
    }
    grant, addresses = list(grants) or None, provider_addresses(providers)
    settings: dict[str, Any] = {"database": database, "providers": addresses, "grant": grant, **usual, **more}
    began, is_told = SystemClock.monotonic(), False
    while True:
        try:
            return Runtime(**settings)
        except Conflict as error:
            waited_s = SystemClock.monotonic() - began
            if waited_s > STORE_WAIT_S:
                raise
            if waited_s > _TOLD_S and not is_told:
                is_told = True
                click.echo(printable(f"waiting up to {STORE_WAIT_S:g} s: {error.message}"), err=True)
            Event().wait(_PAUSE_S)


def runtime_around(invocation: Invocation, node: Node) -> Runtime:
    """Return a runtime of the store that knows the nodes beside one: its evidence depends on those that it calls."""
    from lyra.vesper.repository.folders import repository_around

    return runtime_of(invocation, None, (), (), nodes=repository_around(node.file))


def load_stored_nodes(invocation: Invocation) -> Repository:
    """Return the nodes that the store keeps."""
    with runtime_of(invocation, None, (), ()) as runtime:
        return runtime.stored_nodes()


# ---------------------------------------------------------------- values and outcomes


def duration_words(milliseconds: float) -> str:
    """Return a time as a person reads it."""
    return f"{milliseconds:.0f} ms" if milliseconds < 1_000 else f"{milliseconds / 1_000:.1f} s"


VALUE_CHARS_MAX = 300  # of one value on the screen


def outcome_data(outcome: Outcome, redaction: Redaction) -> dict[str, Any]:
    error = None if outcome.error is None else {"code": outcome.error.code, "message": outcome.error.message}
    return {"status": outcome.status, "outputs": render_values(outcome.outputs, redaction), "error": error}


def outcome_lines(outcome: Outcome, redaction: Redaction) -> list[str]:
    failure = outcome.error
    words = outcome.status
    if failure is not None:
        words += f" {failure.code}: {failure.message}" if failure.message else f" {failure.code}"
    return [words, *(f"  {name}: {text}" for name, text in render_values(outcome.outputs, redaction).items())]


def drop_unwritten(program: NodeProgram, texts: Mapping[str, str]) -> dict[str, str]:
    """Return values without those that no step has written yet; inputs that are null stay."""
    inputs = {entry.name for entry in program.inputs}
    return {name: text for name, text in texts.items() if text != "null" or name in inputs}


def render_values(variables: Mapping[str, Any], redaction: Redaction, hidden: Collection[str] = ()) -> dict[str, str]:
    """Return values as texts, without sensitive ones and those that `hidden` names; long ones are cut."""
    from lyra.vesper.values.json_values import json_shape
    from lyra.vesper.values.redaction import REDACTED

    names = redaction.names | frozenset(hidden)
    texts: dict[str, str] = {}
    for name, value in variables.items():
        plain = REDACTED if name in names else json_shape(redaction.value(value))
        text = plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
        texts[name] = text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}…"
    return texts
