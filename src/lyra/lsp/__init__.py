"""Editors: the Language Server Protocol, spoken for the languages of Lyra.

`texts` keeps what an editor has open, `language` says what a language can answer about it, as plain data by offsets;
`server` answers the editor for one `Language`, and `protocol` turns the plain data into the protocol's types. Only
`server` and `protocol` import pygls, which is an extra. Vega and Vesper each implement a `Language` in their own
`lsp` folder.
"""
