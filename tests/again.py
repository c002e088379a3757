"""Runs the few tests that failed beside others once more, alone: `python -m tests.again STATUS`, after pytest's STATUS.

A test that passes alone depends on how busy the machine is. It is named, so that it can be mended, and does not fail
the whole run. More than a few failures are not tried again, and one that fails alone fails the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["main"]

TRIED_MAX: Final = 8
_TESTS_FAILED: Final = 1  # pytest's exit code for failed tests; others mean that it did not get that far
_LAST_FAILED: Final = Path(".pytest_cache", "v", "cache", "lastfailed")


def main(status: int, folder: Path = Path()) -> int:
    if status != _TESTS_FAILED:
        return status
    try:
        failed = list(json.loads((folder / _LAST_FAILED).read_text()))
    except (OSError, ValueError):
        return status
    if not failed or len(failed) > TRIED_MAX:
        return status
    print(f"once more, alone: {', '.join(failed)}", flush=True)
    again = subprocess.run([sys.executable, "-m", "pytest", *failed], cwd=folder, check=False).returncode
    if again == 0:
        print(f"failed beside other tests, passed alone: {', '.join(failed)}")
    return again


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
