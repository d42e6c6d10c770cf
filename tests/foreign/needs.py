"""Prints what an installed distribution requires, without torch and extras: needs.py NAME."""

import importlib.metadata
import sys

for need in importlib.metadata.requires(sys.argv[1]):
    if "extra ==" not in need and not need.startswith("torch=="):
        print(need)
