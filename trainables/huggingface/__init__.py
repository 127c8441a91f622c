"""Hugging Face's libraries: `trainables.huggingface.transformers`."""
