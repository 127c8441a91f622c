"""A command line as a trial: what it is told, its lines of metrics, what it saves, its process and its life."""
