"""One driver's life on an experiment: its parts, the loop that dispatches and settles, what it keeps and writes."""
