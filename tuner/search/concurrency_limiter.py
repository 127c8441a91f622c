"""`ray.tune.search.concurrency_limiter` as users know it: see `tuner.search.limiter`."""

from tuner.search.limiter import ConcurrencyLimiter as ConcurrencyLimiter
