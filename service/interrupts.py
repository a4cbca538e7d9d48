"""Handling of Ctrl-C (SIGINT). Imports almost nothing, because it is loaded before all other modules."""

import _signal as signal  # the module `signal` would first load `enum` and six others
import os

STATUS = 130  # 128 + SIGINT, the convention of shells


def exit_at_once() -> None:
    """End the process at an interrupt. Used while modules load and nothing has to be cleaned up.

    A KeyboardInterrupt raised during an import may be lost in a callback or become another error. If the parent process
    ignores SIGINT, as a shell does for background jobs, it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _exit)


def raise_error() -> None:
    """Raise KeyboardInterrupt at an interrupt from now on, so that a command can clean up."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def raises_error() -> bool:
    """Return whether an interrupt raises KeyboardInterrupt."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _exit(*_: object) -> None:
    os._exit(STATUS)
