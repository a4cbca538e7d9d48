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

    def may_take(self, client: str) -> bool:
        """Return whether items of a client may be taken now."""
        return True

    def take(self) -> Item:
        """Remove and return the next item that may be taken. There must be one."""
        self._count -= 1
        client = next(filter(self.may_take, self._by_client))
        waiting = self._by_client.pop(client)
        item = waiting.popleft()
        if waiting:
            self._by_client[client] = waiting  # after all other clients
        return item

    def __bool__(self) -> bool:
        """Return whether there is an item that may be taken."""
        return any(map(self.may_take, self._by_client))

    def __len__(self) -> int:
        return self._count
