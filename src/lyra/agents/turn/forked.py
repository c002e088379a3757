"""What a fork does otherwise than the run that it was forked from: another model, another system prompt.

A fork begins with the journal of the other run, so its first calls are those of the agent as it is declared. The
difference holds from the call on whose key its first row names (`Created.fork`), also after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lyra.agents.turn.turn import Turn
    from lyra.kernel.process.process import Process
    from lyra.models.provider import LLMProvider


MODEL: Final = "model"
SYSTEM: Final = "system"
SINCE: Final = "from_key"
_NOTHING: Final[Mapping[str, Any]] = {}


def _difference(process: Process) -> Mapping[str, Any]:
    forks = process.core.forks
    fork = forks.get(process.pid) if forks else None
    return _NOTHING if fork is None or process.keys < int(fork.get(SINCE, 0)) else fork


def models_here(turn: Turn) -> Sequence[str | LLMProvider]:
    """The models to ask next, in order."""
    model = _difference(turn.process).get(MODEL)
    return (str(model),) if model else turn.agent.models


def system_here(turn: Turn) -> str:
    """The system prompt of the next call."""
    system = _difference(turn.process).get(SYSTEM)
    return turn.system if system is None else turn.runtime.clean(str(system))
