"""Tasks with their own checks: dates, and dates as people write them."""
