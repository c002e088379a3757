"""What a run prints: the program's lines while it runs, or all of them in one JSON document at its end.

`CallRecords` has the agent calls of a run, for `vega run --trace` and the totals of `--json`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec.structs import replace

from lyra.cli.vega.files import error_data, say_error
from lyra.core.event import ModelCalled

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from lyra.cli.vega.live import Live
    from lyra.errors import VegaError
    from lyra.kernel.kernel import Kernel
    from lyra.vega.bytecode.program import Program


class ProgramOutput:
    """Writes the program's lines to stdout, or collects them for the JSON document, and ends the command.

    `calls` has the agent calls of the run; they are listened to for `--trace` and `--json`.

    Lines are written as they come and flushed when the loop gets its turn: a pipe sees them while the program waits,
    and a thousand lines do not cost a thousand system calls.
    """

    def __init__(self, *, collect: bool, trace: bool = False, model: str | None = None) -> None:
        self.lines: list[str] | None = [] if collect else None
        self.listens = trace or collect
        self.calls = CallRecords(trace=self.warn if trace else None, model=model)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.live: Live | None = None
        self._failed: OSError | None = None
        self._flush_is_scheduled = False

    def write(self, line: str) -> None:
        if self.lines is not None:
            self.lines.append(line)
            return
        if self._failed is not None:
            raise self._failed
        if self.live is not None and self.live.write(line):
            return
        try:
            sys.stdout.write(line + "\n")
        except OSError as error:
            self._failed = error
            raise
        if self.loop is not None and not self._flush_is_scheduled:
            self._flush_is_scheduled = True
            self.loop.call_soon(self._flush)

    def warn(self, line: str) -> None:
        self._flush()
        if self.live is not None:
            self.live.warn(line)
        else:
            click.echo(line, err=True)

    def watch(self) -> None:
        """Show the run in a live view from now on; printed lines go through it."""
        from lyra.cli.vega.live import live_view
        from lyra.core.clock import SystemClock

        self.live = live_view(SystemClock())

    def end_watch(self) -> None:
        live, self.live = self.live, None
        if live is not None:
            self._flush()
            live.close()

    def _flush(self) -> None:
        self._flush_is_scheduled = False
        try:
            sys.stdout.flush()
        except OSError as error:
            self._failed = error

    def check(self) -> None:
        """Raise the error of the first write to a closed stdout, whatever the program made of it."""
        if self._failed is not None:
            raise self._failed

    def close(self) -> None:
        """Flush, so that everything printed stands before messages about the run."""
        if self.lines is None:
            sys.stdout.flush()

    def finish(
        self,
        ctx: click.Context,
        file: str,
        value: Any,
        failed: VegaError | None,
        line_of: Callable[[str, int], str],
        run_id: str | None = None,
    ) -> None:
        """Print the document of `--json`, or the error that ended the run, and end the command."""
        self.close()
        if self.lines is not None:
            from lyra.cli.render import document

            document(
                {
                    **({} if run_id is None else {"run": run_id}),
                    "file": file,
                    "ok": failed is None,
                    "output": self.lines,
                    "value": value,
                    "error": None if failed is None else error_data(failed),
                    "calls": self.calls.count,
                    "cost_usd": round(self.calls.cost_usd, 6),
                    "speculative_calls": self.calls.speculative,
                    "speculative_usd": round(self.calls.speculative_usd, 6),
                }
            )
        elif failed is not None:
            say_error(failed, line_of)
        ctx.exit(0 if failed is None else failed.exit_code)


_TOLD: Final = {"trace.span": "span", "trace.event": "event"}
_KEPT: Final = ("began", "place")  # of a row in the journal, for `vega trace`


class CallRecords:
    """A listener of Events that makes one record for each agent call, its model calls summed up.

    `trace` is called with each record as a line of JSON, and with the spans and events that the program itself tells
    (`trace::span`, `trace::event`), which have a `kind`. An early call is recorded when the program reaches it, or as
    `speculative` when the program never does.
    """

    KINDS = frozenset(
        {"model.called", "agent.answered", "call.ahead", "call.taken", "call.speculative", "trace.span", "trace.event"}
    )

    def __init__(self, *, trace: Callable[[str], object] | None, model: str | None = None) -> None:
        self.count = 0
        self.cost_usd = 0.0
        self.speculative = 0
        self.speculative_usd = 0.0
        self._trace = trace
        self._model = model or ""
        self._models: dict[str, list[str]] = {}  # the models of each agent, as the program names them
        self._parts: dict[str | None, list[ModelCalled]] = {}  # model calls by the turn they belong to
        self._early: dict[str, ModelCalled | None] = {}  # by process: early calls that the program has not reached

    def listen(self, kernel: Kernel, program: Program) -> None:
        """Hear of the calls in a kernel. The models of each agent are learned, so that records name them as the program
        does; `--model` replaces all."""
        from lyra.vega.machine.link import link
        from lyra.vega.runtime.rights import settings_of

        linked = link(program)
        for name, info in program.agents.items():
            models = (settings_of(linked, info.configuration) or {}).get("model") or []
            self._models[name] = [self._model] if self._model else models if isinstance(models, list) else [models]
        kernel.on_event(self, self.KINDS)

    def set_totals(self, spent: Mapping[str, int]) -> None:
        """Count what all lives of a run have spent, as its output is that of all of them."""
        self.count, self.cost_usd = spent.get("llm_calls", 0), spent.get("usd", 0) / 1_000_000

    def _model_name(self, agent: str, parts: list[ModelCalled]) -> str:
        """Return the model that was asked last; for a call that was refused, the first model of the agent."""
        models = self._models.get(agent) or [self._model]
        if not parts:
            return models[0]
        asked = parts[-1].model
        return next((name for name in models if name and asked.endswith(f"/{name}")), asked)

    def __call__(self, event: Any) -> None:
        data = event.data
        if event.kind in _TOLD:
            self._write({"kind": _TOLD[event.kind], **{key: data[key] for key in data if key not in _KEPT}})
        elif event.kind == "model.called":
            called = ModelCalled.from_data(data)
            self._parts.setdefault(called.parent_span, []).append(called)
            if event.pid in self._early and self._early[event.pid] is None:
                self._early[event.pid] = called  # one that is cut off has no more than this
        elif event.kind == "agent.answered":
            parts = self._parts.pop(data["span_id"], [])
            record = _record(data, parts, self._model_name(data["agent"], parts))
            if event.pid in self._early:
                self._early[event.pid] = _with_guess(record, parts)
            else:
                self._count(record)
        elif event.kind == "call.ahead":
            self._early[data["pid"]] = None
        else:
            self._close_early(self._early.pop(data["pid"], None), is_taken=event.kind == "call.taken")

    def _close_early(self, record: ModelCalled | None, *, is_taken: bool) -> None:
        if record is None:
            return  # the call ended before it asked a model
        counted = replace(record, guessed_tokens=0, guessed_usd=None)
        if is_taken:
            self._count(counted)
            return
        tokens, usd = record.input_tokens or record.guessed_tokens, record.cost_usd or record.guessed_usd or 0.0
        self.speculative += 1
        self.speculative_usd += usd
        self._write(replace(counted, input_tokens=tokens, cost_usd=usd, status="speculative").to_data())

    def _count(self, record: ModelCalled) -> None:
        """Count a call that the program reached; speculative calls are counted separately."""
        self.count += 1
        self.cost_usd += record.cost_usd or 0.0
        self._write(record.to_data())

    def _write(self, record: dict[str, Any]) -> None:
        if self._trace is not None:
            import json

            self._trace(json.dumps(record, allow_nan=False, default=str))


def _record(turn: dict[str, Any], parts: list[ModelCalled], model: str) -> ModelCalled:
    """Return the record of an agent call: its turn, with the retries of its model calls."""
    return ModelCalled(
        trace_id=turn["trace_id"],
        span_id=turn["span_id"],
        agent=turn["agent"],
        model=model,
        input_tokens=turn["input_tokens"],
        output_tokens=turn["output_tokens"],
        cost_usd=turn["cost_usd"],
        latency_ms=turn["latency_ms"],
        status=turn["status"],
        retries=sum(part.retries for part in parts),
        parent_span=turn["parent_span"],
        estimated=bool(turn.get("estimated")),
    )


def _with_guess(record: ModelCalled, parts: list[ModelCalled]) -> ModelCalled:
    """Return the record with the last estimate for a call that was cut off before the provider counted it."""
    guess = next((part for part in reversed(parts) if part.guessed_usd is not None), record)
    return replace(record, guessed_tokens=guess.guessed_tokens, guessed_usd=guess.guessed_usd)
