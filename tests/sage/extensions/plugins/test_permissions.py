"""What a plugin declares: what that covers, what it comes to for a session, and how a person is told."""

from __future__ import annotations

import pytest

from lyra.core.rights.capability import Capability
from lyra.sage.extensions.plugins.manifest import PluginPermissions

ALL = PluginPermissions(
    tools=("Read",), commands=("git diff *", "./run.sh"), hosts=("a.example",), variables=("TOKEN",), files="write"
)


@pytest.mark.parametrize(
    ("capability", "allowed"),
    [
        ("process.exec:git diff a", True),
        ("process.exec:git push", False),
        ("process.exec:git diff a; rm b", False),
        ("process.exec:./run.sh", True),
        ("net.http:a.example", True),
        ("net.http:b.example", False),
        ("secrets.read:TOKEN", True),
        ("secrets.read:OTHER", False),
        ("fs.write:/etc/x", False),
    ],
)
def test_what_is_not_declared_is_not_allowed(capability: str, allowed: bool) -> None:
    assert ALL.allows(Capability.parse(capability)) is allowed
    assert not PluginPermissions().allows(Capability.parse(capability))


def test_the_grant_of_a_session_has_its_folder_alone() -> None:
    grant = ALL.grant("/work")
    assert grant.allows(Capability.parse("fs.write:/work/a"))
    assert not grant.allows(Capability.parse("fs.write:/other/a"))
    read = PluginPermissions(files="read").grant("/work")
    assert read.allows(Capability.parse("fs.read:/work/a"))
    assert not read.allows(Capability.parse("fs.write:/work/a"))
    assert not PluginPermissions().grant("/work").allows(Capability.parse("fs.read:/work/a"))


def test_levels_of_files() -> None:
    assert [PluginPermissions(files="read").allows_files(level) for level in ("none", "read", "write")] == [
        True,
        True,
        False,
    ]


def test_more_than_before_is_not_covered() -> None:
    """A wider list of any kind, and a wider level of files."""
    assert ALL.covers(ALL)
    assert ALL.covers(PluginPermissions())
    for more in (
        PluginPermissions(tools=("Read", "Bash")),
        PluginPermissions(commands=("git *",)),
        PluginPermissions(hosts=("b.example",)),
        PluginPermissions(variables=("OTHER",)),
    ):
        assert not ALL.covers(more)
    assert not PluginPermissions(files="read").covers(PluginPermissions(files="write"))


def test_a_person_is_told_everything() -> None:
    assert ALL.describe() == [
        "commands, skills and sub-agents of it use the tools: Read",
        "it runs the commands: git diff *, ./run.sh",
        "it reaches the hosts: a.example",
        "it is given your variables: TOKEN",
        "it reads and writes the session's folder",
    ]
    assert PluginPermissions().describe() == []
