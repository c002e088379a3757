"""Answers of models as the vendors' servers write them: as one document, or as server-sent events.

The other side of `lyra.models.providers`, which read them. Start with `writer`, which says what a writer is; `chat`,
`messages` and `responses` are one format each. Used by the gateway, where a provider speaks another format than its
client, and by the mock server of `lyra.testing`.
"""
