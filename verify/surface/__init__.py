"""The whole surface of Lyra and the test that shows each part of it at work.

`entries` lists the surface from the tables in the code. `taps` switch an entry off, `trials` look which test fails
then, and `shown.toml` has the result; `claims.toml` names the tests of the few kinds without a switch, which `evidence`
checks by reading them. `page` writes build/surface.md. Start with `entries`.
"""
