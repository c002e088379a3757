"""The parts that providers share below their formats: HTTP, server-sent events, and one taxonomy of faults.

Start with `http`; `faults` is the taxonomy.
"""
