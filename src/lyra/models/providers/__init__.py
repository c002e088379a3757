"""One provider of models a module: addresses, headers, request bodies and the reader of its stream.

A provider turns a `Request` into its wire format and the answer into `StreamEvent`s. Retries, prices and budgets are
not its business; they are above, in `lyra.models.client` and the agents. Start with
`anthropic`.
"""
