"""Runs programs in memory, without a kernel.

`local` is a host with virtual time, `effects` its answer to each effect, `plain` the quick path for programs that only
compute and print, and the programs of `test` blocks. Runs on the kernel are in `lyra.vega.runtime`.
"""
