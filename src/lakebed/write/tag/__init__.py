"""Tagging: which incoming rows are of keys that the table has, and in which file groups those are."""
