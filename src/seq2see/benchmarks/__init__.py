"""Ours and its peers, taking turns in one process on the same work."""
