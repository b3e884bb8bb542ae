"""How good a model is, and how sure its answers are."""
