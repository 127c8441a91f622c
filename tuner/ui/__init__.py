"""The live page of experiments, `tuner ui`: read as every reader reads, and served to browsers and programs."""
