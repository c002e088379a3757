"""Calls that fail before their first effect: time ran out in the queue, the agent has ended, or a deadlock.

Such a call leaves no effect in the journal, and a replay might decide otherwise: the queue is empty by then, or the
agent is not restored yet. So the error itself is journaled, under the key that the first effect would have had, and
raised again from there. The refusal of an early call is not journaled: the call is made again in program order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from lyra.errors import Divergence, LyraError, VegaError
from lyra.kernel.journal.error_rows import error_from_row
from lyra.kernel.process.call_keys import next_key, upcoming, upcoming_key
from lyra.kernel.process.cut_short import cut_short
from lyra.kernel.process.replay import take_entry
from lyra.vega.values.errors import fault_of
from lyra.vega.values.values import Fault

if TYPE_CHECKING:
    from lyra.vega.runtime.job import VegaJob


_P = ParamSpec("_P")
_T = TypeVar("_T")

_REFUSED: Final = "refused"  # the kind of the journal's entry


def journals_refusals(
    call: Callable[Concatenate[VegaJob, _P], Awaitable[_T]],
) -> Callable[Concatenate[VegaJob, _P], Coroutine[Any, Any, _T]]:
    """For functions that make a call: what they raise before the first effect of it is kept."""

    @wraps(call)
    async def kept(job: VegaJob, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if not job.world.is_durable or kwargs.get("is_early") or job.ctx.pid in job.world.early:
            return await call(job, *args, **kwargs)
        _meet(job)
        process = job.process
        key = upcoming_key(process)
        try:
            return await call(job, *args, **kwargs)
        except Divergence:
            raise
        except (LyraError, Fault) as error:
            # A call that began before the restart has its effects in the journal; nothing is added to them here.
            if upcoming_key(process) == key and upcoming(process) is None:
                cut_short(process, next_key(process), _written(error), form=_REFUSED)
            raise

    return kept


def _meet(job: VegaJob) -> None:
    """Raise the journaled error of a call that failed before its first effect."""
    process = job.process
    entry = upcoming(process)
    if entry is None or entry.kind != _REFUSED:
        return
    take_entry(process, next_key(process), _REFUSED, "", b"")
    error = error_from_row(entry.error)
    raise fault_of(error) if isinstance(error, VegaError) else error


def _written(error: LyraError | Fault) -> LyraError:
    if isinstance(error, LyraError):
        return error
    return VegaError(f"{error.name}: {error.text}", name=error.name, text=error.text)
