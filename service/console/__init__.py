"""Shared parts of the pages: layout, sign-in, messages, display names, times. Handlers are in `routes.console`."""
