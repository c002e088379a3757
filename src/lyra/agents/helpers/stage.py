"""An agent as a stage of pipelines: the program of its stages, and the agent as one stage wants it.

    kernel.register_agent("review", Agent("reviewer", model=…, tools=[…]), prompts={"strict": "Find every mistake."})

Each run of a stage is a process of the kernel that does one task and ends with its answer. The stage's settings
replace the agent's for that run: temperature, max_tokens, generation, the prompt and the model by their keys, an output
schema. They give it no tool that it has not: `allowed_tools` and `tool_access` only take away. The kernel starts the
program and routes on from its result (`lyra.kernel.pipelines`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.declaration.output import AnswerType
from lyra.agents.session.replies import Sink
from lyra.agents.session.shared import runtime_of
from lyra.core.codec import to_plain
from lyra.core.envelope import Envelope
from lyra.core.naming import STAGE_PROGRAM
from lyra.errors import ConfigError
from lyra.kernel.pipelines.declaration import AgentConfig
from lyra.kernel.pipelines.routing import OutputMode, TokenStream, ToolAccess
from lyra.kernel.programs.journaled_call import read
from lyra.tools.permissions.subjects import TOOLS
from lyra.tools.source import ToolSource, part_of

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.agents.session.events import AgentEvent
    from lyra.agents.session.session import Metrics
    from lyra.core.tool import Tool
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.programs.context import Context


_FITTED_KEPT: Final = 256  # agents that were made for stages; more stages make theirs again
_SAMPLING: Final = ("stop", "top_k", "seed", "repeat_penalty")  # of `generation`; top_p is the agent's own


def stage_program(
    agent: AgentDeclaration,
    name: str,
    *,
    prompts: Mapping[str, Any] | None = None,
    models: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Return the program of the stages that run this agent, which the kernel knows by `name`."""
    fitted: dict[bytes, AgentDeclaration] = {}

    async def serve(ctx: Context, pid: str, run: int, stage_name: str) -> dict[str, Any]:
        """Do the work of one run; its result is a report."""
        del stage_name  # the kernel's name for the run, shown where processes are listed
        kernel: Kernel = ctx.own_process.kernel
        work = read(ctx.own_process, "stage", lambda: kernel.orchestrator.runner.work_of(pid, run))
        stage = msgspec.convert(work["stage"], AgentConfig)
        key = msgspec.msgpack.encode(work["stage"])
        if key not in fitted:
            if len(fitted) >= _FITTED_KEPT:
                fitted.clear()
            fitted[key] = fit_agent(agent, stage, prompts=prompts, models=models)
        return await _report(ctx, kernel, pid, fitted[key], stage, Envelope.from_data(work["envelope"]))

    serve.__module__, serve.__qualname__ = "agent", f"{name}{STAGE_PROGRAM}"
    return serve


async def _report(
    ctx: Context, kernel: Kernel, pid: str, agent: AgentDeclaration, stage: AgentConfig, envelope: Envelope
) -> dict[str, Any]:
    from lyra.agents.turn import loop  # not before an agent runs: it brings all that a turn needs

    began = kernel.clock.monotonic()
    sink = _TokenSink(kernel, pid, stage) if stage.token_stream is not TokenStream.OFF else None
    answer = await loop.once(ctx, agent, _message(envelope), sink=sink)
    session = runtime_of(kernel).sessions[ctx.pid]
    return {
        "output": _output(agent, stage, answer),
        "metrics": {**_metrics(session.metrics), "duration_ms": round((kernel.clock.monotonic() - began) * 1000)},
    }


class _TokenSink(Sink):
    """Passes the text of an answer to the listeners of the pipeline as it comes; nothing waits for them."""

    def __init__(self, kernel: Kernel, pid: str, stage: AgentConfig) -> None:
        super().__init__(kernel)
        debug = stage.token_stream is TokenStream.DEBUG

        def pass_on(delta: str) -> None:
            kernel.orchestrator.tell_token(pid, stage.name, delta, debug=debug)

        self._pass_on = pass_on

    def put(self, event: AgentEvent) -> None:
        delta = getattr(event, "delta", None)
        if event.type == "text_delta" and delta:
            self.lengths.append(len(delta))
            self._pass_on(delta)


def fit_agent(
    agent: AgentDeclaration,
    stage: AgentConfig,
    *,
    prompts: Mapping[str, Any] | None = None,
    models: Mapping[str, Any] | None = None,
) -> AgentDeclaration:
    """Return the agent with the settings of its own stage in place."""
    fitted = copy(agent)
    if stage.temperature is not None:
        fitted.temperature = stage.temperature
    if stage.max_tokens is not None:
        fitted.max_tokens, fitted.continuations = stage.max_tokens, 0
        fitted.min_tokens = min(agent.min_tokens, stage.max_tokens)
    if stage.generation is not None:
        fitted.top_p = agent.top_p if stage.generation.top_p is None else stage.generation.top_p
        given = {name: getattr(stage.generation, name) for name in _SAMPLING}
        fitted.sampling = {name: value for name, value in given.items() if value}
    key = stage.prompt_key
    if stage.token_stream is not TokenStream.OFF and stage.streaming_prompt_key:
        key = stage.streaming_prompt_key
    if key and prompts is not None:
        fitted.system = _find(prompts, key, "prompt", "prompt_key")
    if stage.model_role and models is not None:
        fitted.model = _find(models, stage.model_role, "model", "model_role")
        fitted.models = (fitted.model, *agent.fallback)
    if stage.output_schema is not None and agent.output is None and stage.output_mode is OutputMode.STRUCTURED:
        fitted.output = AnswerType.from_value(stage.output_schema)
    fitted.tools = {tool.name: tool for tool in agent.toolbox if _fits(stage, tool)}
    fitted.toolbox = tuple(fitted.tools.values())
    fitted.sources = tuple(narrow_source(stage, source) for source in agent.sources)
    return fitted


def _find(table: Mapping[str, Any], key: str, what: str, setting: str) -> Any:
    if key not in table:
        known = ", ".join(sorted(table)) or "none"
        raise ConfigError(f"there is no {what} {key!r}", hint=f"register_agent was given: {known}", key=setting)
    return table[key]


def _message(envelope: Envelope) -> str:
    """Return the task: the input, what earlier stages gave, and the answer of a person to the last question."""
    parts = [envelope.raw_input] if envelope.raw_input else []
    if envelope.outputs:
        given = msgspec.json.format(msgspec.json.encode(envelope.outputs, enc_hook=to_plain), indent=2).decode()
        parts.append(f"Results of earlier stages:\n{given}")
    asked: Mapping[str, Any] = envelope.interrupt or {}
    response = asked.get("response")
    if isinstance(response, Mapping):
        given_answer = {
            name: value for name, value in response.items() if value not in (None, "") and name != "received_at"
        }
        question = asked.get("question") or "the question"
        parts.append(f"Answer to {question}:\n{msgspec.json.encode(given_answer, enc_hook=to_plain).decode()}")
    return "\n\n".join(parts) or "Begin."


def _output(agent: AgentDeclaration, stage: AgentConfig, answer: str) -> dict[str, Any]:
    """Return the answer as the output of a stage: a mapping as it is, a text under `text`, anything else under
    `value`."""
    if agent.output is None or stage.output_mode is OutputMode.TEXT:
        return {"text": answer}
    value = msgspec.to_builtins(agent.output.read(answer), enc_hook=to_plain)
    return value if isinstance(value, dict) else {"text": value} if isinstance(value, str) else {"value": value}


def _metrics(metrics: Metrics) -> dict[str, int]:
    tokens_in, tokens_out, _, _ = metrics.totals
    return {
        "llm_calls": metrics.calls,
        "tool_calls": metrics.tool_calls,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
    }


# Which of an agent's tools a stage of a pipeline leaves it: those of `allowed_tools`, as far as `tool_access` goes.

_READS: Final = frozenset({"fs.read", "db.read", "memory.read"})
_BEYOND_WRITING: Final = ("process.", "net.", "secrets.", "model.")
_ACTS_OF_READING: Final = ("read", "talk")
_ACTS_BEYOND_WRITING: Final = ("run", "fetch")


def narrow_source(stage: AgentConfig, source: ToolSource) -> ToolSource:
    if stage.tool_access in (None, ToolAccess.ALL) and not stage.allowed_tools:
        return source
    return part_of(source, lambda tool: _fits(stage, tool), ())


def _fits(stage: AgentConfig, tool: Tool) -> bool:
    if stage.allowed_tools and tool.name not in stage.allowed_tools:
        return False
    access = stage.tool_access
    if access is None or access is ToolAccess.ALL:
        return True
    if access is ToolAccess.NONE:
        return False
    return _reads(tool) or (access is ToolAccess.WRITE and not _goes_beyond_writing(tool))


def _act(tool: Tool) -> str:
    """Return what one of Lyra's own tools does to the world; "" for a tool of a user."""
    facts = TOOLS.get(tool.name.lower()) if tool.builtin else None
    return facts.act if facts is not None else ""


def _reads(tool: Tool) -> bool:
    if _act(tool):
        return _act(tool) in _ACTS_OF_READING
    if tool.harmless:
        return True
    return tool.needs_of is None and bool(tool.needs) and all(need.name in _READS for need in tool.needs)


def _goes_beyond_writing(tool: Tool) -> bool:
    if _act(tool):
        return _act(tool) in _ACTS_BEYOND_WRITING
    return tool.foreign or any(need.name.startswith(_BEYOND_WRITING) for need in tool.needs)
