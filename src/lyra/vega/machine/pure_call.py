"""What the machine and the generated code of pure functions share: the answer that gives a call back to the machine."""

from __future__ import annotations

from typing import Final

MISS: Final = object()  # the generated code gave up: the machine makes the same call instruction by instruction
