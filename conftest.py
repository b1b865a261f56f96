"""Keeps the standard module `operator` importable while pytest imports tests below the folder of the same name."""

import operator

# importlib mode imports the parents of a test file as packages, and re-imports one that has no path: without this
# line `operator` would become that folder, and the next `from operator import add` would fail.
operator.__path__ = []  # type: ignore[attr-defined]
