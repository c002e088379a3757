"""Runs to step through, read beside the kernel, and the forks of Vega runs that a server executes.

Start with `timelines`; `vega_forks` has the kernels of the forks.
"""
