"""Every error that a client can get.

A class is an error: its docstring is the message for people, `code` is for programs, `status` is the HTTP status.

    base         the base class
    requests     errors of any request: malformed, too large, rate limited, failed
    auth         credentials, scopes, passwords, OAuth
    resources    rows that do not exist, and the rules and limits of each kind
    uploads      files and pictures
    mcp          the MCP server and its clients
"""

from service.errors.auth import *  # noqa: F403
from service.errors.auth import InsufficientScope
from service.errors.base import ApiError as ApiError
from service.errors.base import ErrorInfo as ErrorInfo
from service.errors.mcp import *  # noqa: F403
from service.errors.requests import *  # noqa: F403
from service.errors.requests import BodyTooLarge, Busy, InternalError, RateLimited, StorageUnavailable
from service.errors.resources import *  # noqa: F403
from service.errors.uploads import *  # noqa: F403

COMMON_STATUSES = frozenset({413, 429, 500, 503})
"""Statuses that any operation may return in addition to those it declares (and 403 `insufficient_scope`)."""

COMMON_ERRORS = (InsufficientScope, BodyTooLarge, RateLimited, InternalError, StorageUnavailable, Busy)
"""The errors that any operation may return in addition to those it declares."""
