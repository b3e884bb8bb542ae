"""Looking inside a model: every value by name, as a table, a picture or a written-out calculation."""
