"""Tests of service/auth."""
