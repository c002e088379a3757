"""An Event: an immutable fact. Everything that can be observed about Lyra is computed from Events.

Owns the shape, the table of kinds, and the record of a model call, which agents and the gateway write and all who sum
up costs read. A journal row becomes an Event when it is published; traces, metrics,
audit and `lyra ps` read nothing else. Never holds a secret, and never decides anything: `observe` and the
kernel do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lyra.core.codec import to_plain

KINDS: Final[dict[str, str]] = {
    "process.created": "a process is in the table",
    "process.state_changed": "a process moved from one state to another",
    "process.terminated": "a process ended, with a reason and a result or an error",
    "process.diverged": "a replay asked for something its journal does not hold; the process is stopped",
    "process.dormant": "a process waits for a program that this kernel does not know",
    "process.tainted": "a process has read text from outside, itself or through another, and is marked from now on",
    "process.unlabelled": "a marked process that ended is forgotten, and its mark with it",
    "effect.started": "an effect is about to be performed",
    "effect.retried": "an effect failed and will be tried again after a pause",
    "effect.finished": "an effect ended, with a value or an error, and its cost",
    "message.sent": "a process sent a message",
    "message.received": "a process took a message from its mailbox",
    "message.dropped": "a message was not delivered, and why",
    "message.withdrawn": "the sender of a question to an agent gave up; it will not be carried out",
    "message.passed": "an agent is past a question that was withdrawn",
    "model.called": "an agent asked a model and has its answer, or the error",
    "tool.called": "an agent ran a tool and has its result, or the error",
    "tool.decided": "permission rules, or a person, decided on a call of a tool",
    "tools.changed": "the sources of an agent's tools have others than before, from its next call of the model on",
    "tools.problems": "a source of tools has files it cannot use, or none any more; it goes on with what it had",
    "tool.refused": "a call of a tool was not made, and why",
    "agent.began": "an agent process began, or goes on after a restart: its conversation is open",
    "agent.answered": "an agent's turn is over: an answer, or why there is none",
    "agent.ended": "an agent process ended, or stands still until its store is opened again",
    "call.ahead": "a program made a call ahead of its turn, in a process of its own",
    "call.taken": "a program came to a call that it had made ahead of its turn",
    "call.ordered": "a call of a @lyra.parallel function is made in its turn, and why",
    "call.speculative": "a call that a program made ahead of its turn was not needed; it is paid for all the same",
    "trace.span": "a program ended a span of its own",
    "trace.event": "a program noted something in its trace",
    "session.turn_began": "a person's message was put to the agent of a session",
    "session.turn_ended": "the turn is over, with its status, its cost and the files that it changed",
    "session.moved": "the conversation of a session goes on from an earlier place, or begins anew",
    "session.set": "a session's title or another setting of its own was changed",
    "task.began": "a session has a sub-agent or a background command",
    "task.asked": "a message was put to a sub-agent of a session",
    "task.ended": "a sub-agent's turn, or a background command, is over, and how",
    "task.told": "the agent of a session was told what became of its sub-agents",
    "task.worktree": "the worktree of a sub-agent was removed",
    "task.forgotten": "a sub-agent or a background command that ended long ago is no longer listed",
    "task.notice": "a sub-agent in the background is done, failed or asks",
    "context.cut": "an agent sends less of its conversation from now on, or a summary of it",
    "capability.denied": "a process asked for something its grant does not cover",
    "timer.set": "a process asked to be woken",
    "interrupt.created": "a question was put to a human",
    "interrupt.resolved": "a human answered",
    "interrupt.expired": "no answer came in time",
    "interrupt.cancelled": "the question was taken back",
    "answer.continued": "an answer that was cut off at its longest goes on: the model was asked to",
    "answer.cut": "a model's provider cut an answer off at its longest",
    "budget.cut": "a budget ended in the middle of an answer",
    "budget.overrun": "an effect cost more than was reserved for it",
    "budget.warning": "a limit that only warns was passed",
    "resource.exceeded": "a quota or a limit stopped something",
    "resource.warning": "four fifths of a quota are used, or the soft time-out has passed",
    "pcb.submitted": "an entry without a program is in the process table",
    "pcb.set_back": "the time of such an entry began in the future, by a clock that was ahead: it begins now",
    "pcb.moved": "such an entry moved from one state to another",
    "pcb.noted": "the stage or service that works on such an entry is another one now",
    "pcb.owned": "a process that runs a program is a user's",
    "pcb.disowned": "such a process ended and left the table",
    "pcb.forgotten": "an ended entry left the process table",
    "pcb.quota": "an entry has a quota, or another one than before",
    "pcb.used": "an entry used some of its quota",
    "pcb.said": "a warning or an overrun of an entry was told, and is not told again",
    "pcb.books_closed": "what an entry used is only in the totals now",
    "pcb.interrupt_created": "a question about a process was put to a human from outside it",
    "pcb.interrupt_ended": "such a question was answered, cancelled or expired",
    "pcb.interrupt_config": "questions of a kind behave in another way from now on",
    "pcb.default_quota": "entries that say nothing get another quota from now on",
    "pcb.interrupts_forgotten": "questions that ended long ago can no longer be looked up",
    "gate.moved": "the rate limit or the circuit breaker of an effect stands otherwise than before",
    "remote.posted": "something was written for another shard of the cluster, to arrive there once",
    "remote.taken": "something of another shard arrived",
    "remote.acknowledged": "another shard has everything up to a number",
    "remote.noted": "a shard remembers something about processes of other shards",
    "rate.counted": "a request of a user was let in and counted",
    "rate.limited": "a rate limit was set or taken back",
    "rate.reset": "a user's counted requests were forgotten",
    "rate.set_back": "requests were counted in the future, by a clock that was ahead: they count as made now",
    "rate.forgotten": "rate windows that are over were forgotten",
    "cleanup.failed": "a round of tidying up did not come to its end; the next one tries again",
    "program.checkpoint": "a program saved its state, and needs no journal before this",
    "process.stopping": "a process was told to end; it may tidy up, and does not come back",
    "service.registered": "a service can be found by its name",
    "service.unregistered": "a service is gone",
    "service.health_changed": "a service's status changed: healthy, degraded, unhealthy or unknown",
    "bus.dropped": "a reader of the bus was too slow, and its oldest message was dropped",
    "group.created": "a group of processes exists",
    "group.deleted": "a group without members is gone",
    "group.joined": "a process is in a group",
    "group.left": "a process left a group, or ended",
    "group.set": "a value was written on a group's blackboard",
    "group.unset": "a value was wiped off a group's blackboard",
    "group.copied": "a shard has a group of another shard as it is there",
    "memory.added": "something is remembered",
    "memory.forgotten": "something is no longer remembered",
    "person.acted": "a person changed something over HTTP, or was refused it: who, what, on what, and the outcome",
    "health.alert": "a process makes no progress, fails again and again, or is near one of its limits",
    "snapshot.failed": "a snapshot could not be written; the next restart is slower, nothing is lost",
    "child.restarting": "a supervised process ended and its supervisor starts it again",
    "supervisor.gave_up": "a supervisor had to restart too often; it stops its children and ends",
    "pipeline.initialized": "a pipeline began for a pid",
    "pipeline.started": "a stage of a pipeline is being run",
    "pipeline.leased": "a worker was given the run of a stage for a while",
    "pipeline.lease_lost": "such a worker was silent for too long, or gave the run back",
    "pipeline.reported": "a run of a stage ended; the pipeline moved on",
    "pipeline.waiting": "a pipeline waits for the answer to a question",
    "pipeline.resumed": "the question a pipeline waited for is over",
    "pipeline.terminated": "a pipeline was ended by a bound or by hand",
    "pipeline.ended": "a pipeline came to its end, with the reason",
    "pipeline.restored": "a pipeline goes on from a checkpoint",
    "pipeline.forgotten": "a pipeline's session was cleaned up",
    "envelope.created": "an envelope without a pipeline is kept",
    "envelope.updated": "some fields of such an envelope changed",
    "envelope.forgotten": "such an envelope is no longer kept",
    "run.began": "a durable run of a Vega program began: its program and its options",
    "run.printed": "a durable run printed a line",
    "run.migrated": "from here on a durable run has another program, and what changed",
    "run.named": "a process of a durable run was given a name by `process::register`",
    "run.paid": "a conversation spent something in a session of a durable run, or the session is over",
    "run.learned": "a durable run learned how a model counts tokens",
    "run.ended": "a durable run came to its end, and what it came to",
    "run.packed": "older lines of a durable run were put together into a blob",
    "vesper.mode": "a node has another mode, and why",
    "vesper.compared": "executions of a node were counted, and how many of them were compared without a difference",
    "vesper.diverged": "two paths of a node gave different answers for the same inputs",
    "vesper.added": "a node was added to those that a store keeps",
    "vesper.alert": "an alert of a node: its condition became true",
    "vesper.executed": "a node was executed; its path and duration, of as many executions as its tracing samples",
    "vesper.ticked": "a scheduled job ran for a moment of its schedule, or was seen for the first time",
    "vesper.audited": "executions of nodes ended, and how: as much as the nodes' audit levels say",
    "vesper.traced": "an execution of a node was stored, so that it can be replayed",
    "vesper.transition": "an entity of a state machine moved to another state",
    "kernel.stopping": "the kernel takes nothing new and closes, and why",
    "kernel.closed": "the kernel closed in order while calls were in flight; they are made again, or asked about",
    "store.waiting": "the store is another kernel's, which may be dead: this one waits for the end of the lease",
    "store.unsigned": "the store is not signed with this user's key: the rights in it are taken as they stand",
    "store.full": "the store has no room; every process stands still until it has",
    "store.failed": "the store is damaged or gone; this kernel writes no more",
    "store.fenced": "another kernel owns the store now; this one writes no more",
}

_encode: Final = msgspec.json.Encoder(enc_hook=to_plain).encode


# Reasons of an end that is no failure: of a process, and of a pipeline.
ENDS_IN_ORDER: Final = frozenset(
    {"normal", "shutdown", "killed", "linked", "completed", "break_requested", "user_cancelled"}
)
NO_FAILURES: Final = frozenset({"ok", "began", "paused", "cancelled"})  # the status of work that has not failed


def is_failed_end(ended: Mapping[str, Any]) -> bool:
    """Return whether the data of a `process.terminated` Event tell of a failure. A process that was told to end has not
    failed, whatever reason was given."""
    return ended.get("reason") not in ENDS_IN_ORDER and not ended.get("stopped")


class Event(msgspec.Struct, frozen=True):
    """`seq` orders the facts of one store, `time` is the wall clock, `pid` is "" for the kernel's own."""

    seq: int
    time: float
    pid: str
    kind: str
    data: Mapping[str, Any]

    def to_json(self) -> str:
        """One line of JSON; bytes as base64."""
        return _encode(self).decode()


_NO_CALL: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("trace_id", "span_id", "agent", "model", "status"), ""),
    **dict.fromkeys(("input_tokens", "output_tokens", "latency_ms", "retries"), 0),
    **dict.fromkeys(("cost_usd", "parent_span")),
}


class ModelCalled(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data of a `model.called` Event: one model call with all its tries, from the start of the first to the end of
    the last. `cost_usd` is None where the price is not known. The fields with a default are in the data only where they
    say something."""

    trace_id: str
    span_id: str
    agent: str
    model: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    latency_ms: int
    status: str
    retries: int
    parent_span: str | None
    key: str = ""  # of the gateway, where one pays
    team: str = ""
    estimated: bool = False  # the provider did not count the tokens
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    total_input_tokens: int = 0  # see `all_input_tokens`
    guessed_tokens: int = 0  # of an early call that was cut off before the provider counted it
    guessed_usd: float | None = None
    sampled: bool | None = None  # what a caller outside decided about the trace

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ModelCalled:
        """Read the data of an Event or of a span; what is missing in it counts nothing."""
        try:
            return msgspec.convert(data, cls)
        except msgspec.ValidationError:
            return msgspec.convert({**_NO_CALL, **data}, cls)

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    @property
    def all_input_tokens(self) -> int:
        """Return the tokens that went in, those of the provider's cache included, which `input_tokens` leaves out in
        some records of earlier versions."""
        return self.total_input_tokens or self.input_tokens

    @property
    def micro_usd(self) -> int:
        """Return the cost in micro-dollars; 0 where the price is not known."""
        return round((self.cost_usd or 0.0) * 1_000_000)
