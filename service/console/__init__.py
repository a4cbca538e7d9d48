"""The console: what its pages have in common. The operations are in `routes.console`, the pages in `templates/`."""
