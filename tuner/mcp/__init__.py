"""`tuner mcp`: experiments for agents, as tools of the Model Context Protocol."""
