"""The home folder of the user where the environment names none, as under cron, `env -i` or some containers.

Sessions are kept in the home of the user that the system knows; the settings, the answers and the key that signs
sessions belong there, too. So `sage` fills in `HOME` before anything reads it. A service that calls Lyra as a library,
or `lyra`, stays without one.
"""

from __future__ import annotations

import os
import pwd


def fill_in_home() -> None:
    """Set HOME to the home folder of this user, where it is not set and there is such a folder."""
    if os.path.isabs(os.environ.get("HOME", "")):
        return
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a user id without a name
        return
    if os.path.isabs(home) and os.path.isdir(home):
        os.environ["HOME"] = home
