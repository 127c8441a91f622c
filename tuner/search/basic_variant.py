"""`ray.tune.search.basic_variant` as users know it: see `tuner.search.variants`."""

from tuner.search.variants import BasicVariantGenerator as BasicVariantGenerator
