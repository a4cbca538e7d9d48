"""Which sockets have something for us: the kernel says so, and those that rest cost nothing.

Waitress asks every connection what it wants before every look; with thousands of them open it does little else.
"""

import selectors
from collections import deque
from typing import Any

from waitress import wasyncore


class Watch(dict[int, Any]):
    """The sockets of a server by their descriptors, as waitress keeps them.

    What a socket wants to hear of (`readable`, `writable`) is asked when it is new, after something happened to it, and
    at every turn while it `is_busy`, that is, while another thread may change its mind.
    """

    def __init__(self) -> None:
        super().__init__()
        self._selector = selectors.DefaultSelector()
        self._awake: set[Any] = set()
        self._woken: deque[Any] = deque()

    def __setitem__(self, descriptor: int, watched: Any) -> None:
        super().__setitem__(descriptor, watched)
        self._awake.add(watched)

    def __delitem__(self, descriptor: int) -> None:
        self._awake.discard(self[descriptor])
        super().__delitem__(descriptor)
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def wake(self, watched: Any) -> None:
        """Have a socket asked again from the next turn on; from any thread."""
        self._woken.append(watched)

    def ask(self) -> None:
        """Ask whoever is awake what it wants; a connection may take up what it has read already."""
        while self._woken:
            self._awake.add(self._woken.popleft())
        for watched in list(self._awake):
            self._ask(watched)

    def turn(self, timeout: float) -> None:
        """Let everything read and write that can, as it was asked; wait at most some seconds until anything can."""
        for key, ready in self._selector.select(timeout):
            watched = key.data
            if not self._holds(key.fd, watched):
                continue  # another closed it in this turn
            ready &= self._ask(watched, to_the_letter=True)
            if ready & selectors.EVENT_READ:
                wasyncore.read(watched)
            if ready & selectors.EVENT_WRITE and self._holds(key.fd, watched):
                wasyncore.write(watched)
            self._awake.add(watched)

    def _holds(self, descriptor: int, watched: Any) -> bool:
        """Whether it is still open; in the meantime its descriptor may have become another's."""
        return self.get(descriptor) is watched

    def _ask(self, watched: Any, to_the_letter: bool = False) -> int:
        """What a socket wants to hear of, and have the kernel tell it.

        That the kernel tells more is put right only when it does: most requests come alone, and the connection wants to
        hear of the next one as soon as this is answered.
        """
        descriptor: int | None = watched._fileno
        if descriptor is None or not self._holds(descriptor, watched):
            self._awake.discard(watched)
            return 0
        if not getattr(watched, "is_busy", False):  # before the questions, whose answers then hold
            self._awake.discard(watched)
        wanted = selectors.EVENT_READ if watched.readable() else 0
        if watched.writable():
            wanted |= selectors.EVENT_WRITE
        key = self._selector.get_map().get(descriptor)
        told = key.events if key else 0
        heard = wanted if to_the_letter else wanted | told
        if heard != told:
            if not told:
                self._selector.register(descriptor, heard, watched)
            elif heard:
                self._selector.modify(descriptor, heard, watched)
            else:
                self._selector.unregister(descriptor)
        return wanted

    def close(self) -> None:
        """Let go of the kernel's end."""
        self._selector.close()
