from tests.tuner.replicated import bucket, cache, server

__all__ = ["bucket", "cache", "server"]
