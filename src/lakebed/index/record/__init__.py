"""The record index: the file group of each record key."""
