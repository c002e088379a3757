"""Kernel values as messages of the contract, and back: tables and plain functions without a kernel.

Start with `fields` (numbers, times, JSON) and `enums` (the tables of words); one module a kind of value beside them.
Each function is total: a value that does not fit is clamped on its way out and a ConfigError on its way in.
"""
