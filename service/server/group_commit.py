"""Group commit: the writes of several requests in one transaction, which waits for the disk once."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue

from service import db, logs
from service.errors import StorageUnavailable
from service.server.exchange import Channel, Exchange
from service.server.fair_queue import FairQueue

log = logging.getLogger("cx.server")

MAX_REQUESTS = 32  # of a transaction
MAX_SECONDS = 0.005  # after which a transaction accepts no further request
MAX_PREPARE_SECONDS = 0.005  # after which no further request is prepared before the prepared ones run

Transaction = Callable[[], AbstractContextManager[Callable[[], None]]]
"""Opens a transaction. The function that it yields raises if the database has rolled it back."""


class GroupCommit:
    """A thread that processes requests which write; those of a client in the order in which they were added.

    Requests are prepared before the transaction: decoded and authenticated. Only their handlers run inside; responses
    are made and sent after the commit. `restart` processes a request from the start in another thread: if preparing it
    takes long, and if the transaction is lost before its end, in which case nothing of it was stored. If the commit
    itself fails, its requests get 503 and are not repeated: after a failed fsync, the disk may report success for data
    that it lost (PostgreSQL wiki, "Fsync Errors"). `wake` wakes the event loop.
    """

    def __init__(self, transaction: Transaction, restart: Callable[[Channel], None], wake: Callable[[], None]) -> None:
        self.transaction, self.restart, self.wake = transaction, restart, wake
        self._queue: SimpleQueue[Exchange | None] = SimpleQueue()
        self._arrived = FairQueue[Exchange]()  # taken from the queue, not prepared
        self._prepared = FairQueue[Exchange]()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="group commit", daemon=True)
        self._thread.start()

    def add(self, exchange: Exchange) -> None:
        """Add a request. Callable from any thread."""
        self._queue.put(exchange)

    def count(self) -> int:
        """Return the number of requests that wait."""
        return self._queue.qsize() + len(self._arrived) + len(self._prepared)

    def stop(self) -> None:
        """Stop the thread after all requests are processed."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while self._arrived or self._prepared or not self._is_stopping:
            self._take()
            with logs.handler.buffered():
                if self._arrived:
                    self._prepare_all()
                if self._prepared:
                    self._commit()
        db.close_database()

    def _take(self) -> None:
        """Empty the queue; wait for a request if there is nothing else to do."""
        with contextlib.suppress(Empty):
            while not self._is_stopping:
                exchange = self._queue.get(block=not (self._arrived or self._prepared))
                if exchange is None:
                    self._is_stopping = True
                else:
                    self._arrived.add(exchange.client, exchange)

    def _prepare_all(self) -> None:
        """Prepare the requests that have arrived, for at most MAX_PREPARE_SECONDS."""
        until = time.monotonic() + MAX_PREPARE_SECONDS
        with db.inline_snapshot():
            while self._arrived and time.monotonic() < until:
                self._prepare(self._arrived.take())

    def _prepare(self, exchange: Exchange) -> None:
        """Prepare a request; send its response if it needs no transaction, such as an error."""
        try:
            with db.inline_read():
                needs_transaction = exchange.prepare()
        except db.NeedsThread:
            self.restart(exchange.channel)
            return
        if needs_transaction:
            self._prepared.add(exchange.client, exchange)
        else:
            self._send(exchange)
            self.wake()

    def _send(self, exchange: Exchange) -> None:
        """Send a response. If that fails, the connection is closed, and the thread continues."""
        try:
            exchange.channel.send_response(exchange)
        except Exception:
            log.exception("a response could not be sent")
            exchange.channel.abort()

    def _commit(self) -> None:
        """Run as many prepared requests as one transaction accepts, commit, and send the responses."""
        ran: list[Exchange] = []
        is_complete = False
        failure: Exception | None = None
        try:
            with self.transaction() as expect_transaction:
                until = time.monotonic() + MAX_SECONDS
                while self._prepared and len(ran) < MAX_REQUESTS and (not ran or time.monotonic() < until):
                    ran.append(self._prepared.take())
                    ran[-1].run()
                    expect_transaction()
                is_complete = True
        except Exception as error:
            if not is_complete:
                self._restart_all(ran)
                return
            log.error("%s requests could not be committed: %s", len(ran), error)
            failure = StorageUnavailable()
        for exchange in ran:
            exchange.finish(failure)
        for exchange in ran:  # after all are made: a client that gets a response competes for the processor
            self._send(exchange)
        self.wake()

    def _restart_all(self, ran: list[Exchange]) -> None:
        """Restart the requests of a lost transaction, or all prepared ones if it could not begin."""
        if not ran:
            ran = [self._prepared.take() for _ in range(len(self._prepared))]
        for exchange in ran:
            self.restart(exchange.channel)
