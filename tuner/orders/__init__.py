"""Orders: what a user says to an experiment that runs, as small files in its directory, which are answered."""
