"""What processes use that talk with each other."""
