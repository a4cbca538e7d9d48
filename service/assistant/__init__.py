"""The client of the configured AI server, and the worker that requests replies from it."""
