"""Uploads that are sent slowly, or in part."""

import contextlib
import socket

from tests.support.server_process import TIMEOUT, Served

AVATAR = "/api/v1/users/me/avatar"

KIND = "multipart/form-data; boundary=b"


def form(content: bytes) -> bytes:
    head = b'--b\r\nContent-Disposition: form-data; name="avatar"; filename="me.png"\r\n\r\n'
    return head + content + b"\r\n--b--\r\n"


class Sender:
    """A client that sends the body of a request in parts."""

    def __init__(self, running: Served, token: str, *lines: str) -> None:
        self.socket = socket.create_connection((running.host, running.port), timeout=TIMEOUT)
        head = [f"POST {AVATAR} HTTP/1.1", "Host: a", f"Authorization: Bearer {token}", f"Content-Type: {KIND}", *lines]
        self.socket.sendall("\r\n".join([*head, "", ""]).encode())

    def send(self, content: bytes) -> bool:
        """Send a part of the body. Returns whether the connection is still open."""
        try:
            self.socket.sendall(content)
        except OSError:
            return False
        return True

    def response(self) -> tuple[int, bytes]:
        """The status and the body of the response; status 0 if there is none."""
        found = b""
        with contextlib.suppress(ConnectionError):
            while chunk := self.socket.recv(65_536):
                found += chunk
                head, parted, body = found.partition(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if parted and length and len(body) >= int(length[0].partition(b":")[2]):
                    break
        self.socket.close()
        return (int(found.split()[1]), found.partition(b"\r\n\r\n")[2]) if found else (0, b"")
