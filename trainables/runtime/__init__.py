"""What runs inside the process of a trial: its attempt, from the first line to the last message."""
