"""Deterministic simulation of the protocol layer: one thread, one virtual clock, one seed that decides everything."""
