"""Tagging: finds the file groups that hold the keys of incoming rows."""
