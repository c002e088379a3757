"""The Python path: generated code and its small runtime. Start with `generate`, which makes a module of a program, then
`run`, which compiles and calls it; generated modules import `runtime` and nothing else."""
