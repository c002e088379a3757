"""Requests of a vendor's format for providers that speak another: read into Lyra's own form, or refused.

`translated` is the table: a reader and a writer for each format. Start with `reading`, which has the rule for what is
carried, what may be left out and what is refused; `chat`, `messages` and `translated` read one format each. The answers
are written by `lyra.models.answers`.
"""
