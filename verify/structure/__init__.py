"""Measures the source tree of Lyra: files in each folder, imports, circles, layers, names and words.

`source_tree` reads the files and knows nothing of rules; `layers` reads the import contracts of pyproject.toml;
`figures` counts, and `grain` how large files and functions are; `picture` draws docs/images/architecture.svg. Nothing
here imports the code that it measures. `python -m verify structure` prints the figures, and `tests/test_structure.py`
holds them to limits.
"""
