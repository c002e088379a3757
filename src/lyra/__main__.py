"""`python -m lyra` is `lyra`."""

import sys

from lyra.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
