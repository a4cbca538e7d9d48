"""Tests of service/operate."""
