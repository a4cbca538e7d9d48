"""Requests that wait until something happens: put aside, so that none of them keeps a thread from the others."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

log = logging.getLogger("cx.server")

TICK = 0.1  # seconds between two looks at what has happened
LINGER = 20  # looks while nobody waits: most who were called back come again, and the first look may be a false alarm
MOST = 500  # requests that wait in a process; whoever comes on top of them is answered at once
MOST_OF_ONE = 20  # of the same caller
REMEMBERED = 600  # looks at what has happened, while a request may be under way

# Opened while anybody waits; each call gives the topics that were touched since the last one, or shortly before.
News = Callable[[], AbstractContextManager[Callable[[], set[str]]]]


@contextmanager
def nothing() -> Iterator[Callable[[], set[str]]]:
    """No news, ever."""
    yield set


class Pause(BaseException):
    """Ends the work on a request that waits; it is begun anew when one of its topics is touched, or at its time.

    No `Exception`, for nothing on its way may answer it as a failure.
    """

    def __init__(self, who: str, topics: frozenset[str], until: float, turn: int) -> None:
        super().__init__(who)
        self.who, self.topics, self.until, self.turn = who, topics, until, turn


class Patience:
    """How a request waits; this one does not, because its server cannot put it aside."""

    def wait(self, who: str, topics: frozenset[str], seconds: float) -> None:
        """Come back here when one of the topics is touched, or `seconds` after the request came. Returns if it is time.

        Call it before anything is written: the request is begun anew.
        """


class WaitingRoom:
    """The requests that a server has put aside, each with what its server calls it back by.

    `turn` counts the looks at what has happened. A request knows the turn at which it began, so that it misses nothing
    between its own look and its coming here.
    """

    def __init__(self, news: News, call_back: Callable[[Any], None], most: int) -> None:
        self._news, self._call_back, self._most = news, call_back, most
        self._waiting: dict[Any, Pause] = {}
        self._touched: dict[str, int] = {}  # the turn at which a topic was last touched
        self._turn = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._watcher: threading.Thread | None = None

    def patience(self, begun: float) -> Patience:
        """The patience of a request that came at `begun`, on the monotonic clock."""
        return _Patience(self, begun, self._turn)

    def count(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def has_room_for(self, who: str) -> bool:
        """Whether one more request of a caller may wait."""
        with self._changed:
            own = sum(pause.who == who for pause in self._waiting.values())
            room = min(self._most, MOST)
            return not self._is_closed and len(self._waiting) < room and own < MOST_OF_ONE

    def admit(self, waiter: Any, pause: Pause) -> None:
        """Put a request aside."""
        with self._changed:
            missed = any(self._touched.get(topic, 0) > pause.turn for topic in pause.topics)
            if not missed and not self._is_closed:
                self._waiting[waiter] = pause
                self._changed.notify()
                if self._watcher is None:
                    self._watcher = threading.Thread(target=self._watch, name="waiting room", daemon=True)
                    self._watcher.start()
                return
        self._call_back(waiter)

    def leave(self, waiter: Any) -> None:
        """Call back a request whose client is gone, if it is here."""
        with self._changed:
            is_here = self._waiting.pop(waiter, None) is not None
        if is_here:
            self._call_back(waiter)

    def close(self) -> None:
        """Call everybody back, and let nobody in any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            everybody = list(self._waiting)
            self._waiting.clear()
        for waiter in everybody:
            self._call_back(waiter)

    def _watch(self) -> None:
        while not self._is_closed:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    self._changed.wait()
            try:
                with self._news() as look:
                    left = LINGER
                    while left and not self._is_closed:
                        time.sleep(TICK)
                        self._spread(look())
                        left = LINGER if self._waiting else left - 1
            except Exception as error:  # the database is away; whoever waits goes on waiting until its time
                log.warning("cannot look for news: %s", error)
                time.sleep(TICK)
                self._spread(set())

    def _spread(self, topics: set[str]) -> None:
        """Call back those whom the topics concern, and those whose time has come."""
        with self._changed:
            self._turn += 1
            if self._turn % REMEMBERED == 0:
                self._touched = {topic: turn for topic, turn in self._touched.items() if turn > self._turn - REMEMBERED}
            self._touched |= dict.fromkeys(topics, self._turn)
            now = time.monotonic()
            called = [who for who, pause in self._waiting.items() if pause.topics & topics or pause.until <= now]
            for waiter in called:
                del self._waiting[waiter]
        for waiter in called:
            self._call_back(waiter)


class _Patience(Patience):
    def __init__(self, room: WaitingRoom, begun: float, turn: int) -> None:
        self._room, self._begun, self._turn = room, begun, turn

    def wait(self, who: str, topics: frozenset[str], seconds: float) -> None:
        until = self._begun + seconds
        if time.monotonic() < until and self._room.has_room_for(who):
            raise Pause(who, topics, until, self._turn)
