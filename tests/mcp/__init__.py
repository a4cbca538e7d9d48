"""Tests of service/mcp."""
