"""Seeded worlds of several hosts in virtual time: shards, lost calls, partitions, pauses, crashes and take-overs.

`sim` runs seeds, `world` is one of them, `loops` lets its hosts run beside each other, `network` carries their calls,
`database` keeps the shards; `programs` is what runs, `shared` uses what shards share, `books` judges it all.
"""
