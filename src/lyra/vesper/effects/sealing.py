"""Sealed data: values that a journal keeps so that only a process with the user's key can read them.

    sealer = Sealer(key)
    sealer.open(sealer.seal(value)) == value

Equal values are sealed to equal texts, because a process that goes on after a crash is compared with its journal; a
reader of the store learns that two sealed values are equal and how long they are, and nothing else. The construction is
a synthetic initialisation vector (SIV): a keyed BLAKE2b of the value is both its nonce and its authentication code, and
the key stream is SHAKE-256 of a second key and that nonce. Both keys are derived from the user's own key, a file
with mode 0600 that sandboxes hide. `docs/explanation/decisions.md` gives the reasons.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from hashlib import blake2b, shake_256
from typing import Any, Final

import msgspec

from lyra.errors import StoreError
from lyra.vesper.values.tagged import from_json, to_json

__all__ = ["Sealer"]

_NONCE_BYTES: Final = 16


class Sealer:
    """Seals and opens with one key."""

    __slots__ = ("_digests", "_nonces", "_stream")

    def __init__(self, key: bytes) -> None:
        purposes = (b"vesper nonce", b"vesper stream", b"vesper digest")
        self._nonces, self._stream, self._digests = (
            blake2b(key=key, digest_size=32, person=purpose).digest() for purpose in purposes
        )

    def seal(self, value: Any) -> str:
        """A value of a node as a text that tells nothing about it."""
        data = msgspec.json.encode(to_json(value))
        nonce = self._nonce(data)
        return base64.b64encode(nonce + self._mixed(data, nonce)).decode()

    def open(self, sealed: str) -> Any:
        """The value; StoreError where it was sealed with another key or changed since."""
        try:
            whole = base64.b64decode(sealed, validate=True)
        except (binascii.Error, ValueError):
            whole = b""
        nonce = whole[:_NONCE_BYTES]
        data = self._mixed(whole[_NONCE_BYTES:], nonce)
        if len(nonce) < _NONCE_BYTES or not hmac.compare_digest(nonce, self._nonce(data)):
            raise StoreError(
                "sensitive values in the store cannot be read: they were sealed with another user's key",
                hint="copy store.key of the user who executed the node into this user's folder of settings",
            )
        return from_json(msgspec.json.decode(data))

    def digest(self, value: Any) -> str:
        """A name for a value that cannot be guessed without the key."""
        return blake2b(msgspec.json.encode(to_json(value)), key=self._digests, digest_size=16).hexdigest()

    def _nonce(self, data: bytes) -> bytes:
        return blake2b(data, key=self._nonces, digest_size=_NONCE_BYTES).digest()

    def _mixed(self, data: bytes, nonce: bytes) -> bytes:
        stream = shake_256(self._stream + nonce).digest(len(data))
        mixed = int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")
        return mixed.to_bytes(len(data), "big")
