"""Callbacks for other libraries, under the names that Ray Tune has for them. Each module needs its library only."""
