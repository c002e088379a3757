"""Repositories whose own files try to get keys, stores, servers, tools and rules (`verify.attacks.project_files`)."""

from __future__ import annotations

import pytest

from lyra.config.trust import FolderTrust
from verify.attacks import project_files


@pytest.mark.parametrize("part", [6, pytest.param(1, marks=pytest.mark.long)])
def test_no_attempt_has_an_effect_without_trust(part: int):
    """In no situation: never answered for, refused, taken back, changed, moved, nested, behind a link. Every attempt
    that a person can agree to has its effect once they did."""
    report = project_files.run(project_files.ATTEMPTS[::part])
    assert report.failures == []
    assert report.attempts > 800 // part
    assert report.agreed > 50 // part


def test_without_trust_in_content_attempts_succeed(monkeypatch: pytest.MonkeyPatch):
    """The suite sees what the wall holds back: with every content trusted most attempts have their effect."""
    monkeypatch.setattr(FolderTrust, "covers", lambda *_: True)
    theirs = [attempt for attempt in project_files.ATTEMPTS if not attempt.never]
    for attempt in theirs:
        with project_files.laid_out(attempt) as world:
            assert project_files.effects(world), attempt.name


def test_an_answer_for_the_name_alone_would_not_do(monkeypatch: pytest.MonkeyPatch):
    """Planted: an answer counts whatever the file holds by now. The suite notices."""

    def covers(self: FolderTrust, folder: str, name: str, _data: bytes) -> bool:
        answer = self.answer(folder, name)
        return answer is not None and answer.trusted

    monkeypatch.setattr(FolderTrust, "covers", covers)
    attempt = next(attempt for attempt in project_files.ATTEMPTS if attempt.name == "Bash in lyra.toml")
    for situation in ("trusted in another version", "changed between question and use"):
        with project_files.laid_out(attempt) as world:
            for folder in project_files.SITUATIONS[situation](world, attempt):
                assert project_files.effects(world, folder), situation
