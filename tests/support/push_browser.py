"""A browser that subscribes to push notifications, and decrypts them as RFC 8291 says."""

import json
import os
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc import jws
from joserfc.jwk import ECKey
from joserfc.util import urlsafe_b64decode, urlsafe_b64encode

from tests.support.fake_ai import ReceivedRequest

CURVE = ec.SECP256R1()


def as_text(content: bytes) -> str:
    return urlsafe_b64encode(content).decode()


def as_bytes(text: str) -> bytes:
    return urlsafe_b64decode(text.encode())


class PushBrowser:
    """The keys of a subscription, which has an endpoint at a push service."""

    def __init__(self, endpoint: str, private: str = "", auth: str = "") -> None:
        self.endpoint = endpoint
        number = int.from_bytes(as_bytes(private))
        self.key = ec.derive_private_key(number, CURVE) if private else ec.generate_private_key(CURVE)
        self.auth = as_bytes(auth) if auth else os.urandom(16)

    @property
    def point(self) -> bytes:
        return self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    @property
    def subscription(self) -> dict[str, Any]:
        """The subscription as JSON."""
        return {"endpoint": self.endpoint, "keys": {"p256dh": as_text(self.point), "auth": as_text(self.auth)}}

    def decrypt(self, body: bytes) -> bytes:
        """The plaintext of a body. Raises an error if it is not meant for this browser."""
        salt, size, length = body[:16], int.from_bytes(body[16:20]), body[20]
        sender, record = body[21 : 21 + length], body[21 + length :]
        assert len(record) <= size and len(body) <= 4096
        secret = self.key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(CURVE, sender))
        material = HKDF(SHA256(), 32, self.auth, b"WebPush: info\x00" + self.point + sender).derive(secret)
        content_key = HKDF(SHA256(), 16, salt, b"Content-Encoding: aes128gcm\x00").derive(material)
        nonce = HKDF(SHA256(), 12, salt, b"Content-Encoding: nonce\x00").derive(material)
        padded = AESGCM(content_key).decrypt(nonce, record, None).rstrip(b"\x00")
        assert padded.endswith(b"\x02")
        return padded[:-1]

    def read(self, request: ReceivedRequest) -> dict[str, Any]:
        """The message of a request."""
        assert request.headers["Content-Encoding"] == "aes128gcm"
        return dict(json.loads(self.decrypt(request.content)))


class Claims(NamedTuple):
    """What a request says of its sender."""

    key: str
    members: dict[str, Any]


def claims_of(request: ReceivedRequest) -> Claims:
    """The verified claims of a request (RFC 8292). Raises an error for an invalid signature."""
    scheme, _, rest = request.headers["Authorization"].partition(" ")
    parameters = dict(part.strip().split("=", 1) for part in rest.split(","))
    assert scheme == "vapid" and parameters.keys() == {"t", "k"}
    point = as_bytes(parameters["k"])
    key = ECKey.import_key({"kty": "EC", "crv": "P-256", "x": as_text(point[1:33]), "y": as_text(point[33:])})
    assert point[0] == 4
    token = jws.deserialize_compact(parameters["t"], key, algorithms=["ES256"])
    return Claims(parameters["k"], dict(json.loads(token.payload)))
