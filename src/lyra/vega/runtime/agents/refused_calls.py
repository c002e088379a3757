"""Calls that end before they ask: late for their turn, to an agent that is gone, or where both would wait for ever.

No effect of theirs tells a later life of that, and what decided it may be otherwise by then: the turn is free, the
agent is not back yet. So the error itself is kept, under the key that the first effect would have had, and met there.
Not of calls ahead of their turn: what those are refused is no outcome, they are made again in it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from lyra.errors import Divergence, LyraError, VegaError
from lyra.kernel.effects.door import take_entry
from lyra.kernel.journal.error_rows import error_from_row
from lyra.kernel.process.call_keys import next_key, upcoming, upcoming_key
from lyra.kernel.process.cut_short import cut_short
from lyra.vega.values.errors import fault_of
from lyra.vega.values.values import Fault

if TYPE_CHECKING:
    from lyra.vega.runtime.job import VegaJob

__all__ = ["journals_refusals"]

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
            # One that an earlier life began to make has its effects in the journal, which is not added to here.
            if upcoming_key(process) == key and upcoming(process) is None:
                cut_short(process, next_key(process), _written(error), form=_REFUSED)
            raise

    return kept


def _meet(job: VegaJob) -> None:
    """Raise what the call came to in an earlier life, if it did not come to ask."""
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
