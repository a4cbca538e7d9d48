"""Signals: the texts that processes send to each other."""

import threading

import pytest

from service import db
from service.db import signals

pytestmark = pytest.mark.database


def test_signals_are_received_once(application):
    with db.listening() as received:
        sent = ["one", "ä" * (signals.MAX_BYTES // 2)]
        for text in sent:
            db.send_signal(text)
        texts = []
        while len(texts) < 2:
            texts += received()
        assert texts == sent and received() == []


def test_signals_of_earlier_times_are_not_received(application):
    db.send_signal("earlier")
    with db.listening() as received:
        assert received() == []


@pytest.mark.sqlite_only("memory of the server")
class TestMemory:
    def test_a_text_that_is_too_long_is_an_error(self):
        with pytest.raises(ValueError, match="too long"):
            signals.SharedSignals().send("x" * (signals.MAX_BYTES + 1))

    def test_only_the_newest_of_very_many_are_received(self):
        shared = signals.SharedSignals(2)
        counts = shared.counts()
        shared.process = 1
        for number in range(signals.ENTRIES + 10):
            shared.send(str(number))
        assert shared.received(counts) == [str(number) for number in range(11, signals.ENTRIES + 10)]
        assert shared.received(counts) == []

    @pytest.mark.slow
    def test_texts_are_never_torn(self):
        """A reader that is overtaken drops what was overwritten."""
        shared, counts, is_over = signals.SharedSignals(), [0], threading.Event()

        def write():
            number = 0
            while not is_over.is_set():
                shared.send(str(number % 10) * (1 + number * 37 % signals.MAX_BYTES))
                number += 1

        thread = threading.Thread(target=write)
        thread.start()
        texts = []
        while len(texts) < 5_000:
            texts += shared.received(counts)
        is_over.set()
        thread.join()
        assert all(len(set(text)) == 1 for text in texts)
