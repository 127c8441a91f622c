from tests.tuner.replicated import bucket, cache, place, server

__all__ = ["bucket", "cache", "place", "server"]
