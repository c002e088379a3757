"""`vesper`, and `lyra vesper`: nodes on the command line. Start at `group`, the table of commands."""
