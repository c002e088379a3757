"""`vesper`, and `lyra vesper`: nodes on the command line."""
