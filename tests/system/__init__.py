"""Tests of the whole: executables, processes, several instances, browsers."""
