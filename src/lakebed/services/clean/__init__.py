"""Cleaning: old files that no snapshot to be kept needs."""
