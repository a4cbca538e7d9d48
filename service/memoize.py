"""Caches for pure functions whose first argument is a text, and that are called with the same few texts."""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar, cast

CACHE_SIZE = 256  # texts for each function

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Function = Callable[Concatenate[str, Parameters], Result]


def memoized(max_length: int) -> Callable[[Function[Parameters, Result]], Function[Parameters, Result]]:
    """Cache the results of a function for its latest texts of at most `max_length` characters.

    Callers must not change a result. `inspect.unwrap` returns the function without the cache.
    """

    def decorate(function: Function[Parameters, Result]) -> Function[Parameters, Result]:
        uncached: Callable[..., object] = function
        cached = functools.lru_cache(CACHE_SIZE)(uncached)

        @functools.wraps(function)
        def call(text: str, *more: object) -> object:
            return cached(text, *more) if len(text) <= max_length else uncached(text, *more)

        return cast("Function[Parameters, Result]", call)

    return decorate
