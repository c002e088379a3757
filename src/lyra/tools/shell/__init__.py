"""Reads command lines of POSIX sh and bash and lists every command in them, nested ones included.

Refuses what it cannot read for sure. Runs nothing and decides nothing: permissions and the sandbox do. Start with
`command_line`, which handles plain lines itself; `grammar` is the reader of the others.
"""
