"""`ray.tune.search.variant_generator` as users know it: see `tuner.search.sample`."""

from tuner.search.sample import grid_search as grid_search
