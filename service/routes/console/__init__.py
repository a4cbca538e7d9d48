"""The pages of the console and their forms, one module per page."""
