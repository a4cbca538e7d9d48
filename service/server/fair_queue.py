"""A queue in which clients take turns."""

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """A queue in which clients take turns, so that many connections give none of them a larger share."""

    def __init__(self) -> None:
        self._by_client: dict[str, deque[Item]] = {}  # in the order of turns
        self._count = 0

    def add(self, client: str, item: Item) -> None:
        """Append an item to those of a client."""
        self._by_client.setdefault(client, deque()).append(item)
        self._count += 1

    def take(self) -> Item:
        """Remove and return the next item. The queue must not be empty."""
        self._count -= 1
        client = next(iter(self._by_client))
        waiting = self._by_client.pop(client)
        item = waiting.popleft()
        if waiting:
            self._by_client[client] = waiting  # after all other clients
        return item

    def __len__(self) -> int:
        return self._count
