"""Tests of service/db."""
