"""Whole texts and documents: sentences, markup, items that a translation must keep, repairs."""
