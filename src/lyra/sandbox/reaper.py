"""The process between Lyra and a command that no process table of its own holds (the second tier).

It leads the group that every process of the command stays in (the filter of system calls refuses to leave it), outside
the fence and outside the command's limits. When the command ends, or Lyra does (killed outright, too: the kernel
says so by a signal), it kills the whole group in one call, itself included; before that it writes down how the command
ended. A program of its own, run as `python -IS keeper.py COMMAND REPORT`: a fork of Lyra that lives on would keep
a copy of Lyra's memory for as long as the command runs.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

__all__ = ["HEARD", "main"]

HEARD: Final = (signal.SIGTERM, signal.SIGCHLD)  # Lyra is dead; the command may be. All others wait for ever.


def main(command: int, report: int) -> None:
    """Wait for the first of the two; nothing that this process would do comes after the last line."""
    while True:
        ended, status = os.waitpid(command, os.WNOHANG)
        if ended:
            os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
            break
        if signal.sigwait(HEARD) == signal.SIGTERM:
            break
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
