"""Randomness: process ids, tokens and seeded generators.

Every component that needs an unpredictable value is given an `Entropy`. The real one reads the operating system; a
seeded one makes a whole run a function of its seed. Process ids are short and readable (`p-` and ten base-32
characters): unique within a store, not a secret. Secrets (tokens) come from `token()`, which a seeded Entropy refuses
to make.
"""

from __future__ import annotations

import os
import random
from typing import Final

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no letter looks like a digit


class ProcessRandom(random.Random):
    """A seeded generator that is also callable: `rng()` is `rng.random()`."""

    def __call__(self) -> float:
        return self.random()


class Entropy:
    """Where ids and seeds come from; `Entropy(seed)` gives the same ones every time."""

    __slots__ = ("_random", "seed")

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed
        # That of the operating system has no state, which a forked process would go on with, too.
        self._random = random.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311

    def text(self, length: int) -> str:
        bits = self._random.getrandbits(5 * length)
        return "".join([_ALPHABET[(bits >> shift) & 31] for shift in range(0, 5 * length, 5)])

    def id(self, prefix: str, length: int = 10) -> str:
        return f"{prefix}-{self.text(length)}"

    def bits(self, count: int = 63) -> int:
        return self._random.getrandbits(count)

    def hex(self, bits: int) -> str:
        """Return so many bits as hexadecimal digits, such as the id of a span."""
        return f"{self._random.getrandbits(bits):0{bits // 4}x}"

    def token(self) -> str:
        """Return an unguessable token; RuntimeError in a seeded Entropy, whose tokens could be guessed."""
        if self.seed is not None:
            raise RuntimeError("a seeded Entropy makes no secrets")
        return os.urandom(32).hex()


def unique_id() -> str:
    """Return an id that no store, run or call anywhere has. It comes from the operating system also where a run is
    seeded: two runs of one seed act on the same world, and their idempotency keys must differ."""
    return Entropy().text(16)


def random_key() -> bytes:
    """Return a key of 256 bits from the operating system, also where a run is seeded."""
    return os.urandom(32)


def make_random(seed: int) -> ProcessRandom:
    """Return the generator a process gets: everything it draws follows from the seed in its first journal row."""
    return ProcessRandom(seed)


def to_address(shard: str, pid: str) -> str:
    """Return the address of a process in a cluster; what is empty, or is an address already, stands as it is."""
    return f"{shard}/{pid}" if pid and "/" not in pid else pid
