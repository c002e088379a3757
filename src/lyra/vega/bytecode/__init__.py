"""Compiled programs: the table of opcodes, the `Program`, its file format, the verifier and the disassembler.

The numbers of opcodes and the layout of `.vgb` files are durable formats. Nothing here runs a program.
Start with `opcodes`, then `program`.
"""
