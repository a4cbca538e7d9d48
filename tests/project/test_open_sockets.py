"""The report of a socket that no test has closed."""

import gc
import socket

import pytest

from tests.support import open_sockets


def test_a_report_names_the_test_and_the_line_that_opened_the_socket() -> None:
    forgotten = [socket.socket()]
    with pytest.warns(ResourceWarning) as warned:
        forgotten.clear()
        gc.collect()
    (opening,) = open_sockets.openings(str(warned[0].message))
    assert opening.startswith("tests/project/test_open_sockets.py::test_a_report_names")
    assert "tests/project/test_open_sockets.py:12" in opening
