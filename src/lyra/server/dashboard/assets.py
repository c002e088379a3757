"""The files that pages load: style sheets, scripts and the icon of `static/`, each under one address for one content.

All files are read once, and a hash of them all stands in their addresses: `assets/HASH/live.js`. So browsers keep them
for ever, and a script that imports `./live.js` gets the one of its own version. No other file can be reached.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer
from lyra.server.http.problems import HttpRefusal

_FOLDER: Final = Path(__file__).parent / "static"
_MEDIA: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FIRST_SHEETS: Final = ("tokens.css", "base.css")
SHEET: Final = "all.css"  # every style sheet in one file: a page waits for one request, not for many
_FOR_EVER: Final = "public, max-age=31536000, immutable"


class AssetSet(NamedTuple):
    """The files by name, and the hash of them all."""

    digest: str
    files: Mapping[str, tuple[str, bytes]]


@cache
def _assets() -> AssetSet:
    files = {
        path.name: (_MEDIA[path.suffix], path.read_bytes())
        for path in sorted(_FOLDER.iterdir())
        if path.suffix in _MEDIA
    }
    files[SHEET] = (_MEDIA[".css"], b"\n".join(files[name][1] for name in _sheet_order(files)))
    total = hashlib.sha256()
    for name, (_, content) in files.items():
        total.update(f"{name} {len(content)}\n".encode())
        total.update(content)
    return AssetSet(total.hexdigest()[:16], files)


def asset_path(name: str) -> str:
    """Return the path of a file from the root of the site; KeyError for one that does not exist."""
    assets = _assets()
    assets.files[name]
    return f"assets/{assets.digest}/{name}"


def _sheet_order(files: Mapping[str, object]) -> list[str]:
    """All style sheets: the tokens and the base first."""
    return [*_FIRST_SHEETS, *(name for name in files if name.endswith(".css") and name not in _FIRST_SHEETS)]


async def _asset(call: HttpCall) -> RawAnswer:
    assets = _assets()
    file = assets.files.get(call.path["name"])
    if file is None or call.path["digest"] != assets.digest:
        raise HttpRefusal(404, "there is no such file", hint="load the page again")
    return RawAnswer(file[1], file[0], 200, {"cache-control": _FOR_EVER})


ENDPOINTS: Final = (
    Endpoint(
        "assets.get",
        "GET",
        "/assets/{digest}/{name}",
        "A style sheet, a script or the icon of the pages",
        _asset,
        is_open=True,
    ),
)
