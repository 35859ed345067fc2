"""Measurements: `make bench`, or `make bench ARGS="scan lookup"` for some of them.

Peers run in the same sitting, turn by turn with lakebed: figures of one run compare with each other, never with those
of another machine or hour. `make interop` prepares the peers.
"""
