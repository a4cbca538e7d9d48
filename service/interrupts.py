"""What Ctrl-C does. Imports next to nothing, since it is loaded before everything else."""

import _signal as signal  # the module `signal` loads `enum` and half a dozen others first
import os

STATUS = 130  # 128 + SIGINT, as shells have it


def exit_at_once() -> None:
    """End the process at an interrupt. For the time in which modules load and nothing needs to be cleaned up.

    A KeyboardInterrupt raised in an import may be lost in a callback or turned into another error. An interrupt that
    the parent process has ignored, as a shell does for what it starts with `&`, stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _exit)


def raise_error() -> None:
    """Raise KeyboardInterrupt at an interrupt from now on, so that a command can clean up."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def raises_error() -> bool:
    """Whether an interrupt raises KeyboardInterrupt now."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _exit(*_: object) -> None:
    os._exit(STATUS)
