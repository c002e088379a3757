"""How a webhook is signed: HMAC-SHA256 over the time and the body, with the secret of the webhook.

    x-lyra-signature: t=1794934000,v1=5f3c…

The secret of a webhook is derived from the key of the server and the webhook's id, so that no journal holds it. The key
is a file in the data folder that only its owner can read, made at the first use.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Final

from lyra.config.private_file import alone, write_private
from lyra.core.ids import random_key
from lyra.core.user_folders import data_folder

SIGNATURE: Final = "x-lyra-signature"
_GITHUB: Final = "x-hub-signature-256"
_KEY_FILE: Final = "webhook-key"
_AGE_MAX_S: Final = 300.0  # an older signature may be a recorded one


def server_key(env: Mapping[str, str] = os.environ) -> bytes:
    """The key of this user's server."""
    path = data_folder(env) / _KEY_FILE
    with alone(path):
        if not path.exists():
            write_private(path, random_key())
        return path.read_bytes()


def secret_of(key: bytes, webhook_id: str) -> str:
    """The secret of a webhook."""
    return hmac.new(key, f"webhook:{webhook_id}".encode(), hashlib.sha256).hexdigest()


def signature(secret: str, body: bytes, now: float) -> str:
    """The value of the header for a body that is sent now."""
    time = int(now)
    return f"t={time},v1={_mac(secret, b'%d.' % time + body)}"


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Whether a request was signed with the secret: in Lyra's form, not long ago, or in GitHub's form."""
    given = headers.get(_GITHUB)
    if given is not None:
        return hmac.compare_digest(given.encode(), f"sha256={_mac(secret, body)}".encode())
    fields = dict(part.partition("=")[::2] for part in headers.get(SIGNATURE, "").split(","))
    time, mac = fields.get("t", ""), fields.get("v1", "")
    if not (time.isascii() and time.isdigit() and len(time) < 16) or abs(now - int(time)) > _AGE_MAX_S:
        return False
    return hmac.compare_digest(mac.encode(), _mac(secret, f"{time}.".encode() + body).encode())


def _mac(secret: str, data: bytes) -> str:
    return hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()
