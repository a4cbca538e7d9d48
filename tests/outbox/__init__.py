"""Tests of service/outbox."""
