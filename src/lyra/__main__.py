"""`python -m lyra` is `lyra`."""

from __future__ import annotations

import sys

from lyra.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
