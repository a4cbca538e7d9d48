"""Tests of service/demo."""
