"""Tests of service/routes: what the operations of the API do."""
