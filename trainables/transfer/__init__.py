"""Storage back ends that move bytes between this host and a remote place; workers and the driver use the same."""
