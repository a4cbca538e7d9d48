"""Tests of service/assistant."""
