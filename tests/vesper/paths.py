"""The evaluators that tests run the same programs on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lyra.vesper.direct.run import run as direct
from lyra.vesper.python.run import run as python
from lyra.vesper.reference.run import run as reference
from lyra.vesper.values.outcome import Outcome

RunPath = Callable[..., Outcome]
PATHS = [pytest.param(direct, id="direct"), pytest.param(reference, id="reference"), pytest.param(python, id="python")]
