"""A model over HTTP, and the page on which to watch it think."""
