"""Bad input: random and damaged files, rows, sources and messages must give a LyraError, soon and in little memory."""
