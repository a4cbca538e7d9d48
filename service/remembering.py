"""Functions of a text that give for the same text the same again, and are asked about the same few texts."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

KEPT = 256  # texts, of each function

Function = TypeVar("Function", bound=Callable[..., Any])


def remembered(most: int) -> Callable[[Function], Function]:
    """Keep what a function gives for its latest texts, its first argument, of at most so many characters.

    Nobody may change what it gives. `inspect.unwrap` gives the function that keeps nothing.
    """

    def decorate(function: Function) -> Function:
        kept = functools.lru_cache(KEPT)(function)

        @functools.wraps(function)
        def remember(text: str, *more: Any) -> Any:
            return kept(text, *more) if len(text) <= most else function(text, *more)

        return remember  # type: ignore[return-value]

    return decorate
