"""Encrypts push messages for a browser (RFC 8291), and signs requests to its push service (RFC 8292).

The library PyCryptodome, which one edition contains, is imported when it is used.
"""

import hmac
import secrets
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from Cryptodome.PublicKey import ECC

CURVE = "P-256"
UNCOMPRESSED = b"\x04"  # the first byte of a point (SEC 1, section 2.3.3)
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


def read_public_key(text: str) -> "ECC.EccKey":
    """Return the public key of a browser, an uncompressed point of the curve. Raises ValueError."""
    from Cryptodome.PublicKey import ECC

    point = decode(text)
    if len(point) != POINT_BYTES or point[:1] != UNCOMPRESSED:
        raise ValueError("expected an uncompressed point")
    key = ECC.import_key(point, curve_name=CURVE)
    if key.pointQ.is_point_at_infinity():  # the library reads it from two zeros
        raise ValueError("expected a point that is not at infinity")
    return key


def point_of(key: "ECC.EccKey") -> bytes:
    """Return the public key of a private one, as an uncompressed point."""
    point: bytes = key.public_key().export_key(format="raw")
    return point


def private_key(number: int) -> "ECC.EccKey":
    """Return the private key with a number."""
    from Cryptodome.PublicKey import ECC

    return ECC.construct(curve=CURVE, d=number)


def encrypt(
    plaintext: bytes, p256dh: str, auth: str, key: "ECC.EccKey | None" = None, salt: bytes | None = None
) -> bytes:
    """Return a body with the content coding aes128gcm. `key` and `salt` are new for each message, except in tests."""
    from Cryptodome.Cipher import AES
    from Cryptodome.Protocol.DH import key_agreement
    from Cryptodome.PublicKey import ECC

    salt = salt or secrets.token_bytes(SALT_BYTES)
    key = key or ECC.generate(curve=CURVE)
    point = point_of(key)
    secret = key_agreement(static_priv=key, static_pub=read_public_key(p256dh), kdf=bytes)
    material = _derive(decode(auth), secret, b"WebPush: info\0" + decode(p256dh) + point, 32)
    content_key = _derive(salt, material, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(salt, material, b"Content-Encoding: nonce\0", 12)
    header = salt + struct.pack("!IB", RECORD_SIZE, len(point)) + point
    return header + b"".join(
        AES.new(content_key, AES.MODE_GCM, nonce=nonce).encrypt_and_digest(plaintext + LAST_RECORD)
    )


def _derive(salt: bytes, secret: bytes, info: bytes, length: int) -> bytes:
    """Return up to 32 bytes by HKDF with SHA-256 (RFC 5869)."""
    return hmac.digest(hmac.digest(salt, secret, "sha256"), info + b"\x01", "sha256")[:length]


def authorization(key: "ECC.EccKey", origin: str, contact: str, expires_at: int) -> str:
    """Return the header that identifies this service to the push service at `origin` until a time in seconds."""
    from Cryptodome.Hash import SHA256
    from Cryptodome.Signature import DSS

    claims = {"aud": origin, "exp": expires_at, "sub": contact}
    token = ".".join(encode(msgspec.json.encode(part)) for part in ({"typ": "JWT", "alg": "ES256"}, claims))
    signature = DSS.new(key, "fips-186-3").sign(SHA256.new(token.encode()))
    return f"vapid t={token}.{encode(signature)}, k={encode(point_of(key))}"
