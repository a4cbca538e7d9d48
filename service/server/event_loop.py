"""The event loop: the kernel reports which sockets are ready, and idle connections cost nothing.

Waitress calls `readable` and `writable` of every connection in every iteration. With thousands of open connections, it
spends most of its time there.
"""

import selectors
from collections import deque
from typing import Any, TypeAlias

from waitress import wasyncore

Dispatcher: TypeAlias = Any  # waitress gives no types


class EventLoop(dict[int, Dispatcher]):
    """The dispatchers of a server (its listening socket and connections) by descriptor, as waitress keeps them.

    `readable` and `writable` of a dispatcher are evaluated when it is new, after an event, after `wake`, and in every
    iteration while it `is_busy`. A thread that changes what they return calls `wake` afterwards.
    """

    def __init__(self) -> None:
        super().__init__()
        self._selector = selectors.DefaultSelector()
        self._registered: dict[int, int] = {}  # events by descriptor; looking them up in the selector takes longer
        self._active: set[Dispatcher] = set()  # dispatchers to evaluate in the next iteration
        self._woken: deque[Dispatcher] = deque()

    def __setitem__(self, descriptor: int, dispatcher: Dispatcher) -> None:
        super().__setitem__(descriptor, dispatcher)
        self._active.add(dispatcher)

    def __delitem__(self, descriptor: int) -> None:
        self._active.discard(self[descriptor])
        super().__delitem__(descriptor)
        if self._registered.pop(descriptor, 0):
            self._selector.unregister(descriptor)

    def wake(self, dispatcher: Dispatcher) -> None:
        """Evaluate a dispatcher in the next iteration. Callable from any thread."""
        self._woken.append(dispatcher)

    def refresh(self) -> None:
        """Evaluate the active dispatchers. A connection may process bytes that it has read already."""
        while self._woken:
            self._active.add(self._woken.popleft())
        for dispatcher in list(self._active):
            self._evaluate(dispatcher)

    def run_once(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for events, and let the dispatchers that are ready read and write."""
        for key, ready in self._selector.select(timeout):
            dispatcher = key.data
            if self.get(key.fd) is not dispatcher:
                continue  # closed in this iteration; its descriptor may have been reused
            ready &= self._evaluate(dispatcher, exact=True)
            if ready & selectors.EVENT_READ:
                wasyncore.read(dispatcher)
            if ready & selectors.EVENT_WRITE and self.get(key.fd) is dispatcher:
                wasyncore.write(dispatcher)
            self._active.add(dispatcher)

    def _evaluate(self, dispatcher: Dispatcher, exact: bool = False) -> int:
        """Register the events of a dispatcher with the kernel, and return them.

        Without `exact`, events are only added. Superfluous ones are removed when they occur: most requests come alone,
        and a connection needs its read event again as soon as the response is sent.
        """
        descriptor = dispatcher._fileno  # None once it is closed
        held: Dispatcher = self.get(descriptor)
        if held is not dispatcher:
            self._active.discard(dispatcher)
            return 0
        if not getattr(dispatcher, "is_busy", False):  # before `readable`, whose result then stays valid
            self._active.discard(dispatcher)
        wanted = selectors.EVENT_READ if dispatcher.readable() else 0
        if dispatcher.writable():
            wanted |= selectors.EVENT_WRITE
        registered = self._registered.get(descriptor, 0)
        events = wanted if exact else wanted | registered
        if events != registered:
            if not registered:
                self._selector.register(descriptor, events, dispatcher)
            elif events:
                self._selector.modify(descriptor, events, dispatcher)
            else:
                self._selector.unregister(descriptor)
            self._registered[descriptor] = events
        return wanted

    def close(self) -> None:
        """Close the selector."""
        self._selector.close()
