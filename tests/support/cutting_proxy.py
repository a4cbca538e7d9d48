"""A TCP proxy that cuts its connections, as mobile networks do."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class CuttingProxy:
    """Passes connections on to a port of this host."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_closed = False
        self.cuts = 0  # connections that were cut
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                with contextlib.ExitStack() as stack:  # closes both, unless they are connected
                    stack.enter_context(client)
                    server = stack.enter_context(socket.create_connection(("127.0.0.1", self._target)))
                    with self._lock:
                        if self._is_closed:
                            return
                        self._open += [client, server]
                    stack.pop_all()
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):  # cut, or closed by the other side
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """Cut all connections, also in the middle of a response."""
        with self._lock:
            ends, self._open = self._open, []
        for end in ends:
            with contextlib.suppress(OSError):  # it was closed before
                end.shutdown(socket.SHUT_RDWR)
                self.cuts += 1
            end.close()

    @contextlib.contextmanager
    def cutting(self, interval: float) -> Iterator[None]:
        """Cut all connections again and again during the block."""
        is_over = threading.Event()

        def repeat() -> None:
            while not is_over.wait(interval):
                self.cut()

        thread = threading.Thread(target=repeat)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._listener.shutdown(socket.SHUT_RDWR)  # ends `accept`
        self._listener.close()
        self.cut()
