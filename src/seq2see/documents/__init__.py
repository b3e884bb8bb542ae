"""Whole texts and documents: sentences, markup, what must come through a translation, repairs."""
