"""Processes on other shards: addresses, posts that arrive once and in order, and what each kind of post does.

A shard is a store with one kernel; a cluster has several. `posts` keeps the durable state and carries posts between
shards; its parts have the kinds of posts: `acts` messages and spawns, `ties` links, monitors and ends. Start with
`posts`. A kernel that is no shard has none of this. Which host has which shard is no concern of the kernel: see
`lyra.cluster`.
"""
