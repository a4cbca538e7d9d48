"""Tests of `service/mcp_client`."""
