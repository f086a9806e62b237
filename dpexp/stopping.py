"""Ctrl-C and SIGTERM: the first waits for the lot in hand, the second for nothing."""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn, final

__all__ = ["Stopped", "answer_signals", "ignoring_signals", "in_one_piece"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """Ctrl-C or SIGTERM. No `Exception`, so that nothing on the way takes it for a failure of the run."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"Stopped by {signal.Signals(signal_number).name}.")
        self.signal_number = signal_number


@final
class _Signals:
    """What has come, and what must not be cut in two."""

    def __init__(self) -> None:
        self.in_hand = False
        self.waiting: int | None = None


_state = _Signals()


def answer_signals() -> None:
    """Makes the first Ctrl-C or SIGTERM raise `Stopped`, and the second end the process at once."""
    _state.in_hand, _state.waiting = False, None
    for number in _SIGNALS:
        signal.signal(number, _stop)


@contextlib.contextmanager
def in_one_piece() -> Iterator[None]:
    """A signal that comes within raises `Stopped` at the end of the block; also a decorator.

    Half a lot is a lot lost: charged, and in no parameters.
    """
    _state.in_hand = True
    try:
        yield
    finally:
        _state.in_hand = False
    came, _state.waiting = _state.waiting, None
    if came is not None:
        raise Stopped(came)


@contextlib.contextmanager
def ignoring_signals() -> Iterator[None]:
    """Drops Ctrl-C and SIGTERM within the block, which must be short: it cleans up after one of them."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(signal_number: int, frame: FrameType | None) -> None:
    for number in _SIGNALS:
        signal.signal(number, _stop_at_once)
    if not _state.in_hand:
        raise Stopped(signal_number)
    _state.waiting = signal_number
    _say("Stopping after this lot; once more stops at once.")


def _stop_at_once(signal_number: int, frame: FrameType | None) -> NoReturn:
    """The second time: whoever insists does not wait until the run is closed."""
    _say("Stopped again: the run was not closed and stays RUNNING in the store, until the next one starts.")
    os._exit(128 + signal_number)


def _say(words: str) -> None:
    os.write(2, f"\n{words}\n".encode())  # a signal may come while Python prints, which must not print then
