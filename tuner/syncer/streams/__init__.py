"""The streams of a replica: journal, checkpoints, small files, and fetches back from it."""
