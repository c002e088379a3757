"""EngineService: envelopes, and runs of pipelines and agents inside the kernel.

A run of a pipeline is durable: a client that goes away, or whose deadline passes, stops reading, and the run goes on;
the same `thread_id` with the same pipeline reads on where it stands, and TerminateProcess ends it. A run of one agent
has no name to come back to: it is ended with its call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from lyra.core.envelope import Envelope
from lyra.core.limits import SERVER_MESSAGE_BYTES_MAX
from lyra.errors import ConfigError, LimitExceeded, LyraError
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.fields import json_mapping, required
from lyra.server.grpc.messages import (
    agent_result_message,
    bounds_message,
    changed_fields,
    envelope_fields,
    envelope_message,
    event_message,
)
from lyra.server.grpc.services.owners import chosen_pid, owned_envelope, require_envelope

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller


class EngineCalls:
    """See the module."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def create_envelope(self, request: pb.CreateEnvelopeRequest, caller: Caller) -> pb.Envelope:
        caller = caller.acting_for(request.user_id)
        fields: dict[str, Any] = {"raw_input": request.raw_input, "metadata": dict(request.metadata)}
        if request.stage_order:
            fields["stage_order"] = list(request.stage_order)
        envelope = self._kernel.create_envelope(
            fields,
            user_id=caller.require_user(),
            request_id=request.request_id,
            session_id=caller.in_session(request.session_id),
        )
        return await self._kept(envelope)

    async def update_envelope(self, request: pb.UpdateEnvelopeRequest, caller: Caller) -> pb.Envelope:
        given = envelope_fields(request.envelope)
        envelope_id = required(request.envelope.envelope_id, "envelope_id")
        held = envelope_message(require_envelope(self._kernel, caller, envelope_id))
        if held.ByteSize() + request.ByteSize() > SERVER_MESSAGE_BYTES_MAX:
            raise LimitExceeded(
                f"envelope {envelope_id} would be larger than a message may be", envelope_id=envelope_id
            )
        changes = changed_fields(given, envelope_fields(held))
        envelope = self._kernel.update_envelope({**changes, "envelope_id": envelope_id})
        return await self._kept(envelope)

    async def clone_envelope(self, request: pb.CloneRequest, caller: Caller) -> pb.Envelope:
        envelope_id = required(request.envelope.envelope_id, "envelope_id")
        require_envelope(self._kernel, caller, envelope_id)
        return await self._kept(self._kernel.clone_envelope(envelope_id))

    async def check_bounds(self, request: pb.Envelope, caller: Caller) -> pb.BoundsResult:
        return bounds_message(self._envelope(request, caller).check_bounds())

    async def _kept(self, envelope: Envelope) -> pb.Envelope:
        """The message of an envelope, once the store has it."""
        await self._kernel.durable()
        return envelope_message(envelope)

    async def execute_pipeline(
        self, request: pb.ExecuteRequest, caller: Caller
    ) -> AsyncGenerator[pb.ExecutionEvent, None]:
        config = json_mapping(request.pipeline_config, "pipeline_config")
        if config is None:
            raise ConfigError("pipeline_config is required", key="pipeline_config")
        pid = request.thread_id
        envelope = self._envelope(request.envelope, caller)
        if pid:
            chosen_pid(self._kernel, caller, pid, envelope.user_id)
        async with aclosing(self._kernel.execute_pipeline(config, envelope, pid=pid or None)) as events:
            async for event in events:
                message = event_message(event, self._kernel.core.now())
                if message is not None:
                    yield message

    async def execute_agent(self, request: pb.ExecuteAgentRequest, caller: Caller) -> pb.AgentResult:
        name = required(request.agent_name, "agent_name")
        config = json_mapping(request.agent_config, "agent_config")
        pid = f"agent_{self._kernel.entropy.text(16)}"
        try:
            run = await self._kernel.execute_agent(name, self._envelope(request.envelope, caller), config, pid=pid)
        except asyncio.CancelledError:
            self._end_run(pid)
            raise
        return agent_result_message(run)

    def _envelope(self, message: pb.Envelope, caller: Caller) -> Envelope:
        fields = owned_envelope(caller, envelope_fields(message))
        return Envelope.create(self._kernel.entropy, now=self._kernel.core.now(), **fields)

    def _end_run(self, pid: str) -> None:
        """End the run of an agent whose caller went away; one that a stopping server cut off goes on later."""
        if self._kernel.core.stopping or pid not in self._kernel.orchestrator.state.sessions:
            return
        with suppress(LyraError):  # it has ended by itself
            self._kernel.orchestrator.terminate_session(pid, "user_cancelled", "its caller went away")
