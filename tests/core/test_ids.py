"""Ids are those of one process alone, also of one that was forked."""

from __future__ import annotations

import os
import subprocess
import sys

from lyra.core.ids import Entropy

FORK = """
import os
from lyra.core.ids import Entropy

entropy = Entropy()
entropy.text(12)
child = os.fork()
os.write(1, entropy.text(12).encode() + b" ")
if not child:
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_process_has_ids_of_its_own() -> None:
    """A name of a temporary folder or of a control group that two processes make ends in one killing the other's."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    told = subprocess.run([sys.executable, "-c", FORK], env=env, capture_output=True, text=True, check=True).stdout
    assert len({*told.split()}) == 2, told


def test_a_seed_gives_the_same_ones() -> None:
    assert Entropy(7).text(12) == Entropy(7).text(12) != Entropy(8).text(12)
