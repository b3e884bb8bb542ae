"""Where pairs come from, and how they become batches."""
