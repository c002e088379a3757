"""Secrets of receivers (a token, a password), sealed with the key of the server before they go into a journal.

AES-GCM with a key derived from the server's, bound to a name: a sealed text opens only under the name that it was
sealed for. Without the key, which is a file of its own, the store tells nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

from lyra.core.ids import random_key
from lyra.errors import Corrupt

_PURPOSE: Final = b"lyra sealed secrets"
_NONCE_BYTES: Final = 12


def seal(key: bytes, name: str, text: str) -> str:
    """The text, encrypted and bound to the name."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = random_key()[:_NONCE_BYTES]
    sealed = AESGCM(_derived(key)).encrypt(nonce, text.encode(), name.encode())
    return base64.b64encode(nonce + sealed).decode()


def unseal(key: bytes, name: str, sealed: str) -> str:
    """The text that was sealed; Corrupt where the key is another one, or the text was changed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        data = base64.b64decode(sealed, validate=True)
        return AESGCM(_derived(key)).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], name.encode()).decode()
    except (InvalidTag, ValueError):
        raise Corrupt(f"a sealed secret of {name} cannot be opened", hint="is the server's key another one?") from None


def _derived(key: bytes) -> bytes:
    return hmac.new(key, _PURPOSE, hashlib.sha256).digest()
