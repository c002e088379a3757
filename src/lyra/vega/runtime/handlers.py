"""The table of effects: what the machine hands out, and the function that answers it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lyra.vega.runtime.agents.streams import STREAMS
from lyra.vega.runtime.budgets import BUDGETS
from lyra.vega.runtime.early.calls import AHEAD
from lyra.vega.runtime.files import FILES
from lyra.vega.runtime.library import LIBRARY, host_function
from lyra.vega.runtime.parallel import PARALLEL
from lyra.vega.runtime.processes import PROCESSES

if TYPE_CHECKING:
    from lyra.vega.runtime.job import VegaJob


HANDLERS: Final[dict[str, Callable[..., Any]]] = {
    **PROCESSES,
    **STREAMS,
    **PARALLEL,
    **AHEAD,
    **BUDGETS,
    **FILES,
    **LIBRARY,
}


def handler(kind: str) -> Callable[..., Any]:
    """The answer to an effect that is not in the table: a host's function, or a refusal."""
    if kind.startswith("host::"):
        name = kind[6:]

        def call(job: VegaJob, *arguments: Any) -> Any:
            return host_function(job, name, *arguments)

        return call
    return partial(_refused, kind)


def _refused(kind: str, _job: VegaJob, *_: Any) -> None:
    from lyra.errors import CapabilityDenied

    raise CapabilityDenied(f"this host does not know {kind}")
