"""What providers share below their formats: HTTP, server-sent events, Amazon's frames, and one taxonomy of faults.

Start with `http`; `faults` is the taxonomy.
"""
