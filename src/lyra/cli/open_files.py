"""How many files and connections this process may have open.

The limit that a shell gives is often 1 024. A server with more connections raises it, up to the limit that the system
sets for the user.
"""

from __future__ import annotations


def allow_open_files(count: int) -> bool:
    """Raise the limit so that so many files can be open; whether it now allows that."""
    try:
        import resource
    except ImportError:  # no such limit on this system
        return True
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return True
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted >= count
