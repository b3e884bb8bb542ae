"""Looking inside a model: every value by name, as a table, a picture or a sum written out."""
