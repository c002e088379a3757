"""Protected names that are symlinks: each is restored after a command that has changed it.

The target of a protected link is protected because of the link. A symlink cannot be a mount point, so a command can
remove or change one; the next search would then protect another file, or none. `hold` remembers where the links of a
folder lead before a command, `put_back` restores them when it has ended: a link that is gone is made again, and a file
that took its name is renamed. While several commands run nothing new is remembered, so that a link which one of them
made is never restored after another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from lyra.errors import LyraError
from lyra.sandbox.paths import Beneath
from lyra.sandbox.protection.forbidden_names import set_aside


class LinkTarget(NamedTuple):
    """A link and its target, both relative to the folder that is searched."""

    link: str
    text: str  # the text of the symlink
    target: str  # "": it may lead anywhere, and only its text counts


class _Held:
    """The links of one folder, and how many commands run in it."""

    def __init__(self, leads: Iterable[LinkTarget]) -> None:
        self.leads = tuple(leads)
        self.commands = 0


_held: Final[dict[str, _Held]] = {}


def hold(root: str, leads: Iterable[LinkTarget]) -> Callable[[], None]:
    """Remember the links before a command; call the returned function when it has ended."""
    held = _held.setdefault(root, _Held(leads))
    held.commands += 1

    def release() -> None:
        held.commands -= 1
        if not held.commands:
            del _held[root]

    return release


def put_back(root: str) -> tuple[list[str], list[str]]:
    """Restore changed links; gives the restored links, and the new names of the files in their place."""
    held = _held.get(root)
    wrong = [lead for lead in held.leads if not _leads(root, lead)] if held else []
    if not wrong:
        return [], []
    moved = set_aside(root, [lead.link for lead in wrong if os.path.lexists(f"{root}/{lead.link}")])
    return [lead.link for lead in wrong if _make(root, lead)], list(moved)


def _leads(root: str, lead: LinkTarget) -> bool:
    """Whether the link leads to its target; True also where the target is gone and nothing is left to protect."""
    target, link = f"{root}/{lead.target}", f"{root}/{lead.link}"
    if not lead.target:
        return os.path.islink(link) and os.readlink(link) == lead.text
    return not os.path.lexists(target) or (os.path.islink(link) and os.path.realpath(link) == target)


def _make(root: str, lead: LinkTarget) -> bool:
    """Make the link with its old text, or straight to the target where a link on the path was changed."""
    above, _, name = lead.link.rpartition("/")
    straight = os.path.relpath(lead.target, above or ".") if lead.target else lead.text
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
