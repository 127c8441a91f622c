"""What an operator calls from the command line: sync, copy, doctor, prove."""
