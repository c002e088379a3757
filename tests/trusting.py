"""Answers for tests: a folder whose files the person trusts, or refused, as they are now."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from lyra.config.asks import AskingFile, folder_asks
from lyra.config.trust import FileAnswer, TrustAnswers


def answer(
    folder: str | os.PathLike[str],
    env: Mapping[str, str] | None = None,
    *,
    trusted: bool = True,
    more: Iterable[AskingFile] = (),
) -> None:
    """Keep an answer for every file that asks for something in this folder, as `lyra trust add` does."""
    answers = TrustAnswers.for_user(env)
    for file in folder_asks(os.fspath(folder), env, more=more):
        assert not file.problem, file
        sentences = tuple(ask.sentence for ask in file.asks)
        answers.keep(file.folder, {file.name: FileAnswer(file.sha256, trusted, sentences)})
