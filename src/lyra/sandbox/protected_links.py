"""Protected names that are symlinks: each leads where it led before, whatever a command made of it.

What a protected link leads to is protected because the link is there. A mount cannot stand on a symlink, so a command
can remove one, or turn it elsewhere; without more the next look would protect something else, or nothing. `hold`
remembers where the links of a folder lead while no command runs in it, `put_back` makes that true again when one has
ended: a link that is gone comes back, and what took its name is set aside. While several commands run nothing new is
remembered, so that what one of them makes is never put back for another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from lyra.errors import LyraError
from lyra.sandbox.forbidden_names import set_aside
from lyra.sandbox.paths import Beneath

__all__ = ["LinkTarget", "hold", "put_back"]


class LinkTarget(NamedTuple):
    """Where a link leads; both paths are relative to the folder that is looked at."""

    link: str
    text: str  # what is written in it
    target: str


class _Held:
    """The links of one folder, and how many commands run in it."""

    def __init__(self, leads: Iterable[LinkTarget]) -> None:
        self.leads = tuple(leads)
        self.commands = 0


_held: Final[dict[str, _Held]] = {}


def hold(root: str, leads: Iterable[LinkTarget]) -> Callable[[], None]:
    """Before a command; what is given back is called when it is over."""
    held = _held.setdefault(root, _Held(leads))
    held.commands += 1

    def release() -> None:
        held.commands -= 1
        if not held.commands:
            del _held[root]

    return release


def put_back(root: str) -> tuple[list[str], list[str]]:
    """The links that lead where they led again, and the new names of what stood in their place."""
    held = _held.get(root)
    wrong = [lead for lead in held.leads if not _leads(root, lead)] if held else []
    if not wrong:
        return [], []
    moved = set_aside(root, [lead.link for lead in wrong if os.path.lexists(f"{root}/{lead.link}")])
    return [lead.link for lead in wrong if _make(root, lead)], list(moved)


def _leads(root: str, lead: LinkTarget) -> bool:
    """Also where there is nothing to lead to any more: then nothing is left to protect."""
    target, link = f"{root}/{lead.target}", f"{root}/{lead.link}"
    return not os.path.lexists(target) or (os.path.islink(link) and os.path.realpath(link) == target)


def _make(root: str, lead: LinkTarget) -> bool:
    """As it was written, or straight to the target where something on the way was turned elsewhere."""
    above, _, name = lead.link.rpartition("/")
    straight = os.path.relpath(lead.target, above or ".")
    with Beneath(root) as folder:
        try:
            parent = folder.open(above or ".", os.O_RDONLY | os.O_DIRECTORY, links=False)
        except (OSError, LyraError):
            return False
        try:
            os.symlink(lead.text, name, dir_fd=parent)
            if not _leads(root, lead):
                os.unlink(name, dir_fd=parent)
                os.symlink(straight, name, dir_fd=parent)
        except OSError:
            return False
        finally:
            os.close(parent)
    return True
