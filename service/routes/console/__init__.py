"""The console: pages on which people do by hand what programs do through the other operations."""
