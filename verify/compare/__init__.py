"""Comparisons of two ways to do the same: sequential and overlapping calls, interpreted and generated code, Erlang's
supervisors and Lyra's.

Modules ending in `functions` or `programs` generate random input; the others run it both ways and report differences.
"""
