"""Transactions: times, locks, heartbeats, tickets, markers, conflict rules, the commit section and rollback.

Plain Python over the ports that are handed in: no threads, no clock, no randomness, no Spark of its own.
"""
