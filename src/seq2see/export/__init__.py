"""Models written for other engines, each checked against ours before it is kept."""
