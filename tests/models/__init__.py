"""Tests of service/models."""
