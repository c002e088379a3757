"""Changes one small thing in the source at a time, and looks whether a test fails: `make mutants`.

`mutations` finds what can be changed, `sample` takes a fixed part of it, `trial` runs the tests that reach a changed
line, and `equivalent.toml` has the changes that no test can see, each with the reason. Start with `mutations`.
"""
