"""Model folders and their weights."""
