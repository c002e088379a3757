"""The HTTP face: REST, server-sent events, the faces that vendors' clients know, webhooks.

Start with `routes`, the table of all that can be asked; `face` listens, `app` puts the parts together, `guard` is what
every request passes first. `api/` answers what is Lyra's own, `compat` what clients of OpenAI and Anthropic ask;
`past/` knows what has happened. A handler calls the kernel and gives plain data; it never writes to a connection
itself.
"""
