"""What is wrong with a table, what that blocks, and how it is put right."""
