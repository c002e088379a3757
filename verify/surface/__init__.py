"""The whole surface of Lyra and the test that shows each part of it at work.

`entries` lists the surface from the tables in the code, `claims.toml` names a test for each entry, `evidence` checks
that the test is there and uses the entry, and `page` writes docs/reference/surface.md. Start with `entries`.
"""
