"""Indexes: one module per kind, from what a write did to the entries that it leaves in the metadata table.

Everything here is pure. Reading the entries back is the business of `lakebed.metadata`, which stores them, too.
"""
