"""RunStep: one thing in a run that a person would point at, numbered from 1 in the order of their beginning.

A step is a message, a model call, a tool call or another effect, a child that was started or started again, a question
to a person, a pause, a finished turn, an end. It has short texts and no whole values. `steps` makes them from rows.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

STEP_KINDS: Final[dict[str, str]] = {
    "began": "the process began",
    "message": "a message was taken from the mailbox",
    "sent": "a message was sent",
    "signal": "the kernel told of another process",
    "model": "a model was asked",
    "tool": "a tool was called",
    "effect": "an effect was performed",
    "spawn": "a child was started",
    "restart": "a supervisor started a child again",
    "wait": "the end of a child was waited for",
    "sleep": "a pause began",
    "question": "a person was asked",
    "turn": "a turn of a conversation ended",
    "milestone": "a stretch of the program ended",
    "checkpoint": "the program saved its state",
    "shared": "a value was written where others read it",
    "note": "something about the run itself",
    "stopping": "the process was told to end",
    "crash": "a process ended with an error",
    "exit": "a process ended",
}


class RunStep(msgspec.Struct, omit_defaults=True):
    """See the module. `seq` and `end_seq` are the rows of its beginning and end; `is_recorded` marks a step that a fork
    took over from the run that it was forked from: it was not performed here, and `usage` is what it cost there."""

    number: int
    seq: int
    pid: str
    kind: str
    what: str
    began_at: float
    status: str = "ok"  # ok, running, waiting, or the code of its error
    ended_at: float | None = None
    end_seq: int = 0
    request: str = ""
    result: str = ""
    error: str = ""
    key: str = ""
    name: str = ""
    agent: str = ""
    model: str = ""
    child: str = ""
    tries: int = 1
    usage: dict[str, int] = {}
    is_recorded: bool = False
    is_inside: bool = False  # a tool that takes `ctx`: a part of the program, whose acts are steps of their own
    digest: str = ""  # of the whole values, where the texts here are cut

    @property
    def last_seq(self) -> int:
        return max(self.seq, self.end_seq)

    @property
    def micro_usd(self) -> int:
        return self.usage.get("usd", 0)

    @property
    def tokens(self) -> int:
        return self.usage.get("input_tokens", 0) + self.usage.get("output_tokens", 0)

    @property
    def latency_ms(self) -> int | None:
        return None if self.ended_at is None else max(0, round((self.ended_at - self.began_at) * 1000))

    def to_data(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in self.__struct_fields__},
            "latency_ms": self.latency_ms,
            "cost_usd": self.micro_usd / 1_000_000,
        }
