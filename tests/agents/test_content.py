"""Images for models: from a file, from bytes, from an address; what is none is refused."""

from __future__ import annotations

import base64

import pytest

from lyra import Image
from lyra.agents.declaration.output import IMAGE_BYTES_MAX, content_of
from lyra.errors import ConfigError

_HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff\xe0",
    "image/gif": b"GIF89a",
    "image/webp": b"RIFF\x00\x00\x00\x00WEBP",
}


@pytest.mark.parametrize("media_type", _HEADS)
def test_a_file_is_read_and_its_kind_is_told_by_its_bytes(tmp_path, media_type):
    """The name of the file says nothing."""
    data = _HEADS[media_type] + b"rest"
    path = tmp_path / "picture.txt"
    path.write_bytes(data)
    for given in (path, str(path)):
        image = Image.from_path(given)
        assert image == Image(media_type, base64.b64encode(data).decode())
        assert image == Image.from_bytes(data)
        assert image.to_data() == {"type": "image", "media_type": media_type, "data": image.data}


def test_a_file_that_cannot_be_read_or_is_no_image_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.png cannot be read: No such file"):
        Image.from_path(tmp_path / "none.png")
    with pytest.raises(ConfigError, match="cannot be read"):
        Image.from_path(tmp_path)
    (tmp_path / "page.png").write_text("<html>")
    with pytest.raises(ConfigError, match="no image that models read"):
        Image.from_path(tmp_path / "page.png")
    (tmp_path / "large.png").write_bytes(_HEADS["image/png"] + bytes(IMAGE_BYTES_MAX))
    with pytest.raises(ConfigError, match="at most"):
        Image.from_path(tmp_path / "large.png")


def test_an_address_is_kept_as_it_is():
    image = Image.from_url("https://example.com/cat.png")
    assert image.to_data() == {"type": "image", "url": "https://example.com/cat.png"}


@pytest.mark.parametrize("url", ["http://example.com/cat.png", "file:///etc/passwd", "cat.png", ""])
def test_an_address_is_https(url):
    """The provider loads it; a file's name is for from_path."""
    with pytest.raises(ConfigError, match="no https address"):
        Image.from_url(url)


@pytest.mark.parametrize("content", [{}, {"media_type": "image/png"}, {"data": "cG5n"}, {"url": ""}])
def test_an_image_without_content_is_refused(content):
    """As an object and as plain data, before anything is asked."""
    with pytest.raises(ConfigError, match="media_type"):
        Image(**content)
    with pytest.raises(ConfigError, match="media_type"):
        content_of([{"type": "image", **content}])


def test_bytes_of_another_kind_are_sent_as_what_they_are_said_to_be():
    """`media_type` decides, also where the bytes are not known to be an image."""
    assert Image.from_bytes(b"unknown", "image/heic").media_type == "image/heic"
    with pytest.raises(ConfigError, match="no image that models read"):
        Image.from_bytes(b"unknown")
