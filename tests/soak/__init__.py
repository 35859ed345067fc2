"""The crash test with real processes: writers on one table are killed, paused and restarted; nothing may be lost."""
