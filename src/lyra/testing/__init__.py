"""Tools for testing programs that use Lyra, and the conformance suite that the tests of a store inherit.

    MockServer        the wire formats of model providers over HTTP, from a script (`mock`)
    SimClock          a clock that a test moves by hand (`clock`)
    run_in_virtual_time  asyncio.run in which a day of sleep takes no time (`loop`)
    record            real answers of models kept in a file and replayed offline (`tape`)
    StoreConformance  the rules every Store keeps, as a suite to inherit (`conformance`)

Nothing is imported before its first use. How Lyra itself is tested (simulated worlds, crashes, attacks) is in the
folder `verify/` of the repository, which is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lyra.testing.clock import SimClock
    from lyra.testing.conformance import StoreConformance
    from lyra.testing.loop import run as run_in_virtual_time
    from lyra.testing.mock import MockServer
    from lyra.testing.tape import record

__all__ = ["MockServer", "SimClock", "StoreConformance", "record", "run_in_virtual_time"]

_HOMES: Final[dict[str, tuple[str, str]]] = {
    "MockServer": ("mock", "MockServer"),
    "SimClock": ("clock", "SimClock"),
    "StoreConformance": ("conformance", "StoreConformance"),
    "record": ("tape", "record"),
    "run_in_virtual_time": ("loop", "run"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)
