"""Switches an entry off in the programs that tests start: Python imports this at its start where PYTHONPATH has it."""

import os

if os.environ.get("LYRA_SURFACE_OFF"):
    from verify.surface.taps import switch_off_named

    switch_off_named(os.environ["LYRA_SURFACE_OFF"])
