"""Type aliases of decoded JSON."""

from typing import Any, TypeAlias

# Not recursive: neither the type checker nor msgspec reads nested members of a recursive alias without conversions.
JsonValue: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Any]
