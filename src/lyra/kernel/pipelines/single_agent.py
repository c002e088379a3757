"""One agent by itself: the pipeline of one stage that `execute_agent` runs, and what came of it.

Pure functions: `orchestrator` runs the pipeline. Its bounds are those of the envelope, and the envelope of the result
is the caller's, with what the run added: the one stage is no part of the work that the caller does with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.envelope import Envelope, TerminalReason
from lyra.errors import ConfigError
from lyra.kernel.pipelines.declaration import AgentConfig

if TYPE_CHECKING:
    from lyra.kernel.pipelines.session import Session


# Keys of a stage that mean other stages: there are none.
_OF_A_PIPELINE: Final = frozenset(
    {"name", "agent", "node_kind", "stage_order", "requires", "after", "join_strategy", "branches"}
    | {"routing_rules", "routing", "default_next", "error_next", "max_visits"}
)
_BOUNDS: Final = ("max_iterations", "max_llm_calls", "max_agent_hops", "max_input_tokens", "max_output_tokens")
# Fields of an envelope that a run changes.
_CHANGED: Final = (
    "outputs",
    "metadata",
    "completed_stage_set",
    "failed_stages",
    "llm_call_count",
    "tool_call_count",
    "agent_hop_count",
    "tokens_in",
    "tokens_out",
    "processing_history",
    "errors",
    "interrupt",
)


class AgentRun(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one run of an agent. `error_code` is a code of Lyra's errors, or the reason why the run was not
    made; both are empty where it went well."""

    success: bool
    output: dict[str, Any]
    error: str = ""
    error_code: str = ""
    duration_ms: int = 0
    llm_calls: int = 0
    tool_calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    pid: str = ""
    envelope: Envelope

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(bytes,))
        return data


def pipeline_of(name: str, config: Any, envelope: Envelope) -> dict[str, Any]:
    """The declaration of the pipeline that runs the agent alone, with the settings of a stage in `config`."""
    if isinstance(config, AgentConfig):
        config = {key: value for key, value in config.to_data().items() if value is not None}
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(f"the settings of an agent are a mapping, not {type(config).__name__}", key="config")
    stage = {key: value for key, value in (config or {}).items() if key not in _OF_A_PIPELINE}
    bounds = {bound: getattr(envelope, bound, None) for bound in _BOUNDS}
    return {
        "name": name,
        "agents": [{**stage, "name": name}],
        **{bound: max(1, most) for bound, most in bounds.items() if most is not None},
    }


def agent_run(name: str, before: Envelope, session: Session, failure: str) -> AgentRun:
    """The result of a session that has run one agent; `failure` is why its process ended early."""
    after, envelope = session.envelope, before.copy()
    ended = after.copy()
    for field in _CHANGED:
        setattr(envelope, field, getattr(ended, field))
    success = after.terminal_reason in (TerminalReason.COMPLETED, TerminalReason.BREAK_REQUESTED) and not failure
    records = after.processing_history[len(before.processing_history) :]
    return AgentRun(
        success=success,
        output=ended.outputs.get(name, {}) if success else {},
        error="" if success else failure or after.failed_stages.get(name) or after.termination_reason,
        error_code="" if success else session.error_code or str(after.terminal_reason or "process_exit"),
        duration_ms=sum(record.duration_ms for record in records),
        llm_calls=after.llm_call_count - before.llm_call_count,
        tool_calls=after.tool_call_count - before.tool_call_count,
        tokens_in=after.tokens_in - before.tokens_in,
        tokens_out=after.tokens_out - before.tokens_out,
        pid=session.process_id,
        envelope=envelope,
    )
