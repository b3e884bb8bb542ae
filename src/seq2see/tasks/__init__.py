"""Tasks whose pairs are made here: dates, dates as people write them, and the data of the recipes."""
