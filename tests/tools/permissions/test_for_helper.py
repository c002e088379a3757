"""The permissions of a helper: never more than its caller's, and about its own workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra.tools.permissions import Permissions, Rule, permissions_of
from lyra.tools.permissions.settings import Layer
from lyra.tools.permissions.subjects import subject_of


def decision(permissions: Permissions, name: str, **arguments: Any) -> str:
    subject = subject_of(name, arguments, workspace=permissions.workspace, home=permissions.home, known=True)
    return permissions.decide(subject).decision


def made(folder: Path, mode: str = "default", **rules: list[str]) -> Permissions:
    return permissions_of([Layer("flags", dict(rules), "test")], workspace=str(folder), mode=mode)


def test_another_mode_leaves_the_callers_alone(tmp_path: Path) -> None:
    caller = made(tmp_path, "bypass")
    helper = caller.for_helper(mode="plan")
    write = {"file_path": str(tmp_path / "a"), "content": ""}
    assert decision(helper, "Write", **write) == "deny"
    assert decision(caller, "Write", **write) == "allow"
    assert decision(caller.for_helper(), "Write", **write) == "allow"


def test_only_what_rules_speak_of(tmp_path: Path) -> None:
    """They allow nothing by themselves."""
    helper = made(tmp_path, allow=["Bash(git *)"]).for_helper(only=["Read", "Bash(git diff *)", "Bash(make *)"])
    assert decision(helper, "Bash", command="git diff x") == "allow"
    assert decision(helper, "Bash", command="git push x") == "deny"
    assert decision(helper, "Bash", command="make all") == "ask"
    assert decision(helper, "Read", file_path=str(tmp_path / "a")) == "allow"
    assert decision(helper, "Write", file_path=str(tmp_path / "a"), content="") == "deny"


@pytest.mark.parametrize("absolute", [False, True])
def test_rules_hold_for_the_same_places_in_another_workspace(tmp_path: Path, absolute: bool) -> None:
    """Also those that name a place of the caller's in full, and answers."""
    main, copy = tmp_path / "main", tmp_path / "copy"
    for folder in (main, copy):
        folder.mkdir()
    prefix = f"{main}/" if absolute else ""
    rules = [Rule(f"Edit({prefix}src/**)", "allow", workspace=str(main))]
    rules += [Rule(f"Edit({prefix}src/secret.py)", "deny", workspace=str(main))]
    answers = [Rule(f"Write({main}/yes.py)", "allow", source="answers", workspace=str(main))]
    kept: list[Rule] = []
    caller = Permissions(rules, workspace=str(main), answers=answers, keep=kept.append)
    helper = caller.for_helper(workspace=str(copy))

    def write(permissions: Permissions, path: Path) -> str:
        return decision(permissions, "Write", file_path=str(path), content="")

    assert write(helper, copy / "src" / "a.py") == "allow"
    assert write(helper, copy / "src" / "secret.py") == "deny"
    assert write(helper, copy / "yes.py") == "allow"
    assert write(helper, copy / "other.py") == "ask"
    assert write(helper, main / "src" / "a.py") == "ask"
    helper.keep(Rule("Bash(x)", "allow"))
    assert kept == []


def test_a_helpers_workspace_is_not_protected_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of the home that commands may not change can hold one; files around it stay protected."""
    monkeypatch.setenv("HOME", str(tmp_path))
    copy = tmp_path / ".local" / "share" / "copies" / "a"
    copy.mkdir(parents=True)
    (tmp_path / "main").mkdir()
    caller = made(tmp_path / "main", "bypass")

    def forbidden(path: Path) -> bool:
        arguments = {"file_path": str(path), "content": ""}
        subject = subject_of("Write", arguments, workspace=caller.workspace, home=caller.home, known=True)
        return caller.forbids(subject) is not None

    assert forbidden(copy / "x.py")
    caller.for_helper(workspace=str(copy))
    assert not forbidden(copy / "x.py")
    assert forbidden(copy.parent / "x.py")
    assert forbidden(copy / ".git" / "config")
