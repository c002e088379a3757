"""Where extensions come from: precedence, trust of the very content, links, and bounds of a listing."""

from __future__ import annotations

import os

import pytest

from lyra.sage.extensions.custom_commands import CustomCommands
from lyra.sage.extensions.extension_files import FILES_MAX, ExtensionPlace, markdown_files
from tests.sage.extensions.support import Desk, put


def names(desk: Desk, **options: object) -> set[str]:
    return set(CustomCommands.load(desk.places(**options)).entries())  # type: ignore[arg-type]


def test_plugins_come_before_the_project_and_the_project_before_the_user(desk: Desk) -> None:
    plugin = ExtensionPlace("plugin", "/plugins/p", plugin="p")
    assert [place.origin for place in desk.places(plugins=[plugin])] == ["plugin", "project", "user"]


def test_without_a_home_there_is_no_user_place(desk: Desk) -> None:
    desk.env = {}
    assert [place.origin for place in desk.places()] == ["project"]


def test_the_users_own_folder_is_not_a_project_besides(desk: Desk) -> None:
    """Sage that runs where `.lyra` is the user's own folder reads it once."""
    desk.env["XDG_CONFIG_HOME"] = str(desk.project)
    os.symlink(desk.project / ".lyra", desk.project / "lyra")
    (desk.project / ".lyra").mkdir()
    assert [place.origin for place in desk.places()] == ["project"]


def test_trust_is_for_the_content_that_was_shown(desk: Desk) -> None:
    """A file that changes after the answer does not count, and neither does a new one beside it."""
    path = desk.of_project("commands/go.md", "Go.")
    assert names(desk, trusted=None) == set()
    desk.trust()
    assert names(desk, trusted=None) == {"go"}
    put(path, "Go elsewhere.")
    desk.of_project("commands/new.md", "New.")
    assert names(desk, trusted=None) == set()


def test_a_folder_of_a_project_that_is_a_link_does_not_count(desk: Desk) -> None:
    """It could lead to any folder of the user."""
    desk.of_user("other/go.md", "Go.")
    (desk.project / ".lyra").mkdir()
    os.symlink(desk.user / "other", desk.project / ".lyra" / "commands")
    assert names(desk) == set()
    os.symlink(desk.user / "other", desk.user / "commands")
    assert names(desk) == {"go"}


def test_a_lyra_folder_that_is_a_link_does_not_count(desk: Desk) -> None:
    put(desk.user / "elsewhere" / "commands" / "go.md", "Go.")
    os.symlink(desk.user / "elsewhere", desk.project / ".lyra")
    assert names(desk) == set()


def test_a_loop_of_links_ends(desk: Desk) -> None:
    desk.of_user("commands/go.md", "Go.")
    os.symlink(desk.user / "commands", desk.user / "commands" / "again")
    assert "go" in names(desk)


def test_a_listing_is_bounded(desk: Desk) -> None:
    """In the number of files, in depth and in the length of names."""
    for number in range(FILES_MAX + 1):
        desk.of_user(f"commands/c{number:04}.md", "T")
    desk.of_user("commands/a/b/c/d/e/deep.md", "T")
    place = ExtensionPlace("user", str(desk.user))
    files, mistakes = markdown_files(place, "commands")
    assert len(files) == FILES_MAX
    assert [mistake.message for mistake in mistakes] == [
        f"only the first {FILES_MAX} of {FILES_MAX + 1} files are read"
    ]


def test_a_folder_that_cannot_be_read_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.of_user("commands/go.md", "Go.")

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert CustomCommands.load(desk.places()).problems[0].endswith("it cannot be read: Permission denied")
