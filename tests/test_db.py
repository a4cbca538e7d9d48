"""What the database layer knows of its engine."""

import pytest

from service.db import has_wal_reset_bug


@pytest.mark.parametrize("version", [(3, 40, 1), (3, 44, 5), (3, 50, 6), (3, 51, 2), (3, 45, 9)])
def test_versions_with_the_wal_reset_bug_are_known(version):
    assert has_wal_reset_bug(version)


@pytest.mark.parametrize("version", [(3, 44, 6), (3, 50, 7), (3, 51, 3), (3, 53, 4), (4, 0, 0)])
def test_versions_without_it_are_known_too(version):
    assert not has_wal_reset_bug(version)
