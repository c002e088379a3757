"""Images that a prompt names go with it; pastes of many lines are folded."""

from __future__ import annotations

from pathlib import Path

import pytest

from lyra import Image
from lyra.sage.terminal.attachments import Pastes, prompt_of

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


@pytest.mark.parametrize(
    "written",
    [
        "look at shot one.png".replace("shot one", "shot"),
        "look at @shot.png, please",
        "'my shot.png' here",
        '"my shot.png"',
        "my\\ shot.png",
        "{folder}/shot.png",
        "file://{folder}/my%20shot.png",
        "is shot.png?",
    ],
)
def test_a_path_to_an_image_is_sent_as_an_image(tmp_path: Path, written: str) -> None:
    """Typed, quoted, escaped, dragged into the terminal, or as an address."""
    (tmp_path / "shot.png").write_bytes(PNG)
    (tmp_path / "my shot.png").write_bytes(PNG)
    prompt = prompt_of(written.format(folder=tmp_path), str(tmp_path))
    text, image = prompt.content
    assert text == written.format(folder=tmp_path)
    assert isinstance(image, Image)
    assert image.media_type == "image/png"
    assert "shot.png" in prompt.notes[0]


def test_what_is_no_image_is_not_sent(tmp_path: Path) -> None:
    """A file that only has the name of an image is told; one that does not exist is text."""
    (tmp_path / "no.png").write_text("secret")
    prompt = prompt_of("no.png and missing.png and x.py", str(tmp_path))
    assert prompt.content == "no.png and missing.png and x.py"
    assert len(prompt.notes) == 1
    assert "no.png is not sent" in prompt.notes[0]


def test_paths_inside_a_paste_are_not_followed(tmp_path: Path) -> None:
    """A log that mentions an image does not send it."""
    (tmp_path / "shot.png").write_bytes(PNG)
    pastes = Pastes()
    folded = pastes.fold("a\nb\nshot.png\nd")
    assert prompt_of(pastes.unfold(folded), str(tmp_path), folded=folded).content == "a\nb\nshot.png\nd"


def test_a_paste_of_many_lines_is_a_mark_and_unfolds() -> None:
    """The prompt stays short; the message has the whole text."""
    pastes = Pastes()
    text = "\n".join("abcdef")
    mark = pastes.fold(text)
    assert mark == "[paste 1: 6 lines]"
    assert pastes.unfold(f"see {mark} and [paste 9: 1 lines]") == f"see {text} and [paste 9: 1 lines]"
    assert pastes.fold("one\ntwo") == "one\ntwo"
