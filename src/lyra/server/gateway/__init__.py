"""The gateway: programs in any language call model providers through Lyra, each with its own key.

`routes` is the table of what can be asked, and the answers. A request comes with a key (`keys`), is read as far as the
gateway has to know it (`request`), and its bytes go to the provider unchanged but for the model's name (`targets`); the
answer's bytes come back unchanged while its usage is read on the side (`relay`). Each call is an effect of the process
that represents the key (`call`), so that the key's budget, the journal and the records hold for it. Start with
`routes`.
"""
