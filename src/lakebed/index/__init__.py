"""Indexes: one folder per kind, and what the rest of the engine asks of all of them.

`kind.py` says what a kind is, `kinds.py` lists them. `keys.py` is the index of record keys, asked for by what it does.
"""
