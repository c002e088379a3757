"""One post of a JSON body to a URL that another party named: checked against this network, bounded, not redirected.

A URL inside this network is refused, by the same guard that the tools' requests pass. A failure is an EffectFailed
whose status says whether it is tried again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Collection, Mapping
from typing import Final

from lyra.config.files import alone, write_private
from lyra.core.ids import random_key
from lyra.core.policies.retry import Backoff, Retry
from lyra.core.rights.capability import Grant
from lyra.core.user_folders import data_folder
from lyra.errors import Corrupt, EffectFailed, ToolError

POST_RETRY: Final = Retry(max_attempts=6, backoff=Backoff(initial_s=1.0, factor=4.0, max_s=300.0, jitter=0.2))
POST_TIMEOUT_S: Final = 20.0
_ANSWER_BYTES_MAX: Final = 64 * 1024


def check_url(url: str, inside: Collection[str]) -> None:
    """Raise CapabilityDenied for a URL inside this network, unless `inside` names its `host:port`."""
    from lyra.sandbox.addresses import target_of
    from lyra.tools.http_guard import host_and_port

    if host_and_port(url) not in inside:
        target_of(url)


async def post(url: str, body: bytes, headers: Mapping[str, str], *, inside: Collection[str]) -> int:
    """Post a JSON body; the status of the answer. EffectFailed where the receiver does not take it."""
    from lyra.tools.http_guard import fetch

    try:
        answer = await fetch(
            url,
            grant=Grant.all(),
            method="POST",
            headers={"content-type": "application/json", **headers},
            body=body,
            redirects=0,
            bytes_max=_ANSWER_BYTES_MAX,
            timeout_s=POST_TIMEOUT_S,
            inside=inside,
        )
    except ToolError as error:
        raise EffectFailed(error.message) from None  # tried again
    if answer.status >= 300:  # the status says whether it is tried again; a redirect is not followed
        raise EffectFailed(f"the receiver answered {answer.status}", status=max(answer.status, 400))
    return answer.status


# ---------------------------------------------------------------- signing
# How a webhook is signed: HMAC-SHA256 over the time and the body, with the secret of the webhook.

SIGNATURE: Final = "x-lyra-signature"
_GITHUB: Final = "x-hub-signature-256"
_KEY_FILE: Final = "webhook-key"
_AGE_MAX_S: Final = 300.0  # an older signature may be a recorded one


def server_key(env: Mapping[str, str] = os.environ) -> bytes:
    """Return the key of this user's server."""
    path = data_folder(env) / _KEY_FILE
    with alone(path):
        if not path.exists():
            write_private(path, random_key())
        return path.read_bytes()


def secret_of(key: bytes, webhook_id: str) -> str:
    """Return the secret of a webhook."""
    return hmac.new(key, f"webhook:{webhook_id}".encode(), hashlib.sha256).hexdigest()


def signature(secret: str, body: bytes, now: float) -> str:
    """Return the value of the header for a body that is sent now."""
    time = int(now)
    return f"t={time},v1={_mac(secret, b'%d.' % time + body)}"


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Return whether a request was signed with the secret: in Lyra's form, not long ago, or in GitHub's form."""
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


# ---------------------------------------------------------------- sealing
# Secrets of receivers (a token, a password), sealed with the key of the server before they go into a journal.

_PURPOSE: Final = b"lyra sealed secrets"
_NONCE_BYTES: Final = 12


def seal(key: bytes, name: str, text: str) -> str:
    """Return the text, encrypted and bound to the name."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = random_key()[:_NONCE_BYTES]
    sealed = AESGCM(_derive(key)).encrypt(nonce, text.encode(), name.encode())
    return base64.b64encode(nonce + sealed).decode()


def unseal(key: bytes, name: str, sealed: str) -> str:
    """Return the text that was sealed; Corrupt where the key is another one, or the text was changed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        data = base64.b64decode(sealed, validate=True)
        return AESGCM(_derive(key)).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], name.encode()).decode()
    except (InvalidTag, ValueError):
        raise Corrupt(f"a sealed secret of {name} cannot be opened", hint="is the server's key another one?") from None


def _derive(key: bytes) -> bytes:
    return hmac.new(key, _PURPOSE, hashlib.sha256).digest()
