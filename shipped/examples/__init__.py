"""The world of rules from which the model ``examples`` learns, and its training. It is no part of the package."""
