"""Writes the generated pages of docs/reference from the tables that the code uses: `python -m lyra.cli.reference`."""
