"""Processes and the door: the part of Lyra that everything else runs on.

Read `door` first (one list, in order), then `process` (what is stepped), `scheduler` (in which order), `journal`
(what is kept), `recovery` and `recall` (how it comes back), `kernel` (the table and the face). Programs hold a
`context`.
"""

from lyra.kernel.handle import Ack, Handle
from lyra.kernel.interrupts import Answer, Interrupt
from lyra.kernel.kernel import Kernel
from lyra.kernel.links import Down, ExitSignal
from lyra.kernel.process import Exit

__all__ = ["Ack", "Answer", "Down", "Exit", "ExitSignal", "Handle", "Interrupt", "Kernel"]
