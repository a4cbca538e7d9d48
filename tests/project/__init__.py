"""Tests of the repository: its layout, tools and documents."""
