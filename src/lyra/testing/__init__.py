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

from lyra._imports import on_first_use

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lyra.testing.clock import SimClock
    from lyra.testing.conformance import StoreConformance
    from lyra.testing.loop import run as run_in_virtual_time
    from lyra.testing.mock import MockServer
    from lyra.testing.tape import record

__all__ = ["MockServer", "SimClock", "StoreConformance", "record", "run_in_virtual_time"]

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = on_first_use(
        __name__,
        {
            "mock": "MockServer",
            "clock": "SimClock",
            "conformance": "StoreConformance",
            "loop": "run_in_virtual_time",
            "tape": "record",
        },
    )
