"""Knowledge about programs in command lines: which options and words make a program run others, read settings or write
files.

Tables with readers over them, used by permissions and by tools in YAML. `lyra.tools.shell` splits command lines; this
folder never does. Start with `programs`.
"""
