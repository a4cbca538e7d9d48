"""Tests that run for many values and report all values for which they fail."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

Test = Callable[..., None]


def for_each(parameter: str, values: Mapping[str, Any]) -> Callable[[Test], Test]:
    """Decorate a test that takes a value as `parameter`: it runs once, for all values, which have names."""
    assert values, f"no value for {parameter}"

    def decorate(test: Test) -> Test:
        def run(*arguments: Any, **fixtures: Any) -> None:
            failures = []
            for name, value in values.items():
                try:
                    test(*arguments, **fixtures, **{parameter: value})
                except AssertionError as error:
                    failures.append(f"{name}: {error}")
            assert not failures, "\n".join([f"fails for {len(failures)} of {len(values)}:", *failures])

        signature = inspect.signature(test)
        others = [other for other in signature.parameters.values() if other.name != parameter]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
        run.__module__ = test.__module__
        return run

    return decorate
