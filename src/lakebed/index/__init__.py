"""Indexes: one folder per kind, and the interface that the rest of the engine uses.

`kind.py` defines what a kind is, `kinds.py` lists all kinds, `keys.py` is the door to the index of record keys.
"""
