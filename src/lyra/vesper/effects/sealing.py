"""Sealed data: values that a journal keeps so that only a process with the user's key can read them.

    sealer = Sealer(key)
    sealer.open(sealer.seal(value)) == value

Equal values are sealed to equal texts, because a process that goes on after a crash is compared with its journal; a
reader of the store learns that two sealed values are equal and how long they are, and nothing else. The cipher is
AES-SIV (RFC 5297), which is made for that. Its key, and one for digests, are derived from the user's own key, a file
with mode 0600 that sandboxes hide. `docs/explanation/decisions.md` gives the reasons.
"""

from __future__ import annotations

import base64
from hashlib import blake2b
from typing import Any, Final

import msgspec

from lyra.errors import StoreError
from lyra.vesper.values.json_values import from_json, to_json

_KEY_BYTES: Final = 64  # AES-256 for the vector, and for the data


class Sealer:
    """Seals and opens with one key."""

    __slots__ = ("_cipher", "_digests")

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV  # here: most nodes have nothing to seal

        self._cipher = AESSIV(blake2b(key=key, digest_size=_KEY_BYTES, person=b"vesper seal").digest())
        self._digests = blake2b(key=key, digest_size=32, person=b"vesper digest").digest()

    def seal(self, value: Any) -> str:
        """A value of a node as a text that tells nothing about it."""
        data = msgspec.json.encode(to_json(value))
        return base64.b64encode(self._cipher.encrypt(data, None)).decode()

    def open(self, sealed: str) -> Any:
        """The value; StoreError where it was sealed with another key or changed since."""
        from cryptography.exceptions import InvalidTag

        try:
            data = self._cipher.decrypt(base64.b64decode(sealed, validate=True), None)
        except (InvalidTag, ValueError):
            raise StoreError(
                "sensitive values in the store cannot be read: they were sealed with another user's key",
                hint="copy store.key of the user who executed the node into this user's folder of settings",
            ) from None
        return from_json(msgspec.json.decode(data))

    def digest(self, value: Any) -> str:
        """A name for a value that cannot be guessed without the key."""
        return blake2b(msgspec.json.encode(to_json(value)), key=self._digests, digest_size=16).hexdigest()
