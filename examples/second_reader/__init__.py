"""A reader of rows, written from PROTOCOL.md alone. Read it in this order:

entries.py finds the newest entry and decodes all of them, state.py folds them into the state of a namespace and chooses
the segments of a topic, segments.py (with pages.py) reads their rows, __main__.py puts it together and prints.
"""
