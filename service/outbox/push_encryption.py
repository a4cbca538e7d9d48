"""Encrypts push messages for a browser (RFC 8291), and signs requests to its push service (RFC 8292).

The library `cryptography`, which one edition contains, is imported when it is used.
"""

import hmac
import secrets
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

RECORD_SIZE = 4096
AUTH_BYTES, SALT_BYTES, POINT_BYTES = 16, 16, 65
LAST_RECORD = b"\x02"  # the delimiter of the only record (RFC 8188, section 2)


def encode(content: bytes) -> str:
    """Return bytes as base64url without padding."""
    return urlsafe_b64encode(content).decode().rstrip("=")


def decode(text: str) -> bytes:
    """Return the bytes of base64url without padding. Raises ValueError."""
    content = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if encode(content) != text:
        raise ValueError("expected base64url")
    return content


def read_public_key(text: str) -> "ec.EllipticCurvePublicKey":
    """Return the public key of a browser, an uncompressed point. Raises ValueError."""
    from cryptography.hazmat.primitives.asymmetric import ec

    point = decode(text)
    if len(point) != POINT_BYTES:
        raise ValueError("expected an uncompressed point")
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)


def point_of(key: "ec.EllipticCurvePrivateKey") -> bytes:
    """Return the public key of a private one, as an uncompressed point."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def private_key(number: int) -> "ec.EllipticCurvePrivateKey":
    """Return the private key with a number."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.derive_private_key(number, ec.SECP256R1())


def encrypt(
    plaintext: bytes,
    p256dh: str,
    auth: str,
    key: "ec.EllipticCurvePrivateKey | None" = None,
    salt: bytes | None = None,
) -> bytes:
    """Return a body with the content coding aes128gcm. `key` and `salt` are new for each message, except in tests."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt = salt or secrets.token_bytes(SALT_BYTES)
    key = key or ec.generate_private_key(ec.SECP256R1())
    point = point_of(key)
    secret = key.exchange(ec.ECDH(), read_public_key(p256dh))
    material = _derive(decode(auth), secret, b"WebPush: info\0" + decode(p256dh) + point, 32)
    content_key = _derive(salt, material, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(salt, material, b"Content-Encoding: nonce\0", 12)
    header = salt + struct.pack("!IB", RECORD_SIZE, len(point)) + point
    return header + AESGCM(content_key).encrypt(nonce, plaintext + LAST_RECORD, None)


def _derive(salt: bytes, secret: bytes, info: bytes, length: int) -> bytes:
    """Return up to 32 bytes by HKDF with SHA-256 (RFC 5869)."""
    return hmac.digest(hmac.digest(salt, secret, "sha256"), info + b"\x01", "sha256")[:length]


def authorization(key: "ec.EllipticCurvePrivateKey", origin: str, contact: str, expires_at: int) -> str:
    """Return the header that identifies this service to the push service at `origin` until a time in seconds."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    claims = {"aud": origin, "exp": expires_at, "sub": contact}
    token = ".".join(encode(msgspec.json.encode(part)) for part in ({"typ": "JWT", "alg": "ES256"}, claims))
    r, s = decode_dss_signature(key.sign(token.encode(), ec.ECDSA(SHA256())))
    return f"vapid t={token}.{encode(r.to_bytes(32) + s.to_bytes(32))}, k={encode(point_of(key))}"
