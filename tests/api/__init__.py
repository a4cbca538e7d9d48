"""Tests of service/api."""
