"""A start: what stands here and in the replica is surveyed, one action chosen, applied, and undone where it fails."""
