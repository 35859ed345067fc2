"""Timeline files: names of instants, their contents, and the archived timeline."""
