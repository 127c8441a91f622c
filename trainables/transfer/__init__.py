"""Back ends that move bytes between this host and a place elsewhere; a worker and the driver use the same ones."""
