"""Incoming rows: where they come from, their keys, partition paths and columns, and their order."""
