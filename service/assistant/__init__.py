"""The client of the configured AI server, the limits of apps, and what is requested from it: replies, and drafts."""
