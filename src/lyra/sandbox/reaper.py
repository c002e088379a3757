"""The process that kills a command's process group at its end, in the tier without its own process table.

It leads the group that every process of the command stays in (the filter of system calls refuses to leave it), outside
the confinement and the limits of the command. When the command or Lyra ends (also when Lyra is killed: the kernel
sends a signal), it kills the whole group in one call, itself included; before that it writes how the command ended.
It is its own program, run as `python -IS reaper.py COMMAND REPORT`, because a fork of Lyra would keep a copy of
Lyra's memory for as long as the command runs. With two more descriptors, a socket and the settings, a thread of it
makes files for the command (`creator`).
"""

from __future__ import annotations

# One starts with every command: it imports only what the interpreter has in it, which halves the time of its start.
import _signal  # type: ignore[import-not-found]  # what `signal` is made of
import _socket
import _thread
import os
import sys

# Lyra has died; the command may have ended. All other signals stay blocked.
HEARD = (_signal.SIGTERM, _signal.SIGCHLD)


def main(command: int, report: int) -> None:
    """Wait until the command or Lyra ends, then kill the group, this process included."""
    while True:
        ended, status = os.waitpid(command, os.WNOHANG)
        if ended:
            os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
            break
        if _signal.sigwait(HEARD) == _signal.SIGTERM:
            break
    os.killpg(0, _signal.SIGKILL)


def _serve(socket: int, settings: int) -> None:
    """Receive the listener from the command's first process, and answer the calls that it passes on."""
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import creator  # type: ignore[import-not-found]  # beside this file, which runs without packages

    channel = _socket.socket(fileno=socket)
    _, messages, _, _ = channel.recvmsg(1, _socket.CMSG_SPACE(4))
    channel.close()
    if messages:  # else the kernel has refused the filter
        with open(settings, "rb") as file:
            folders, files, spare, spares = creator.decode(file.read())
        os.umask(0)
        listener = int.from_bytes(messages[0][2], sys.byteorder)
        creator.Creator(listener, folders, files, spare, spares).serve()


if __name__ == "__main__":
    _command, _report, *_creating = map(int, sys.argv[1:])
    if _creating:
        _thread.start_new_thread(_serve, (_creating[0], _creating[1]))
    main(_command, _report)
