import copy
import gc
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

from dpexp.noise import GaussianNoise, NoiseAhead, SecureGaussianNoise
from dpexp.streams import Stream
from tests.conftest import REPOSITORY


class Recording:
    """Notes which positions are drawn, and where."""

    def __init__(self, fails=()):
        self.drawn, self.fails = [], fails
        self.inner = GaussianNoise(Stream.keyed_by(0))

    def standard_normal(self, position, size):
        self.drawn.append((position, size, threading.current_thread() is threading.main_thread()))
        if position in self.fails:
            raise MemoryError(f"no room at {position}")
        return self.inner.standard_normal(position, size)


def finish(ahead):
    if ahead._next is not None:
        ahead._next.made.exception()


@pytest.mark.parametrize("mode", [GaussianNoise, SecureGaussianNoise])
@pytest.mark.parametrize(
    "calls", [[(t, 500) for t in range(6)], [(3, 9), (3, 9), (4, 7), (9, 7), (0, 7), (1, 0)]]
)
def test_draws_are_those_of_the_noise_it_wraps(mode, calls):
    plain = mode(Stream.keyed_by(1))
    ahead = NoiseAhead(plain, positions=10)
    for call in calls:
        np.testing.assert_array_equal(ahead.standard_normal(*call), plain.standard_normal(*call))


def test_the_next_position_is_drawn_in_another_thread_and_once():
    noise = Recording()
    ahead = NoiseAhead(noise, positions=3)
    for t in range(3):
        ahead.standard_normal(t, 10)
    assert noise.drawn == [(0, 10, True), (1, 10, False), (2, 10, False)]


@pytest.mark.parametrize("positions", [0, 1, 4])
def test_nothing_is_drawn_past_the_declared_positions(positions):
    noise = Recording()
    ahead = NoiseAhead(noise, positions=positions)
    for t in range(6):
        ahead.standard_normal(t, 10)
        finish(ahead)
    assert {position for position, _, main in noise.drawn if not main} == set(range(1, positions))


def test_draws_belong_to_the_caller():
    ahead = NoiseAhead(GaussianNoise(Stream.keyed_by(0)), positions=5)
    ahead.standard_normal(0, 10)
    first = ahead.standard_normal(1, 10)
    kept = first.copy()
    first *= 0
    np.testing.assert_array_equal(ahead.standard_normal(1, 10), kept)


def test_an_error_in_the_thread_shows_at_its_own_position():
    ahead = NoiseAhead(Recording(fails={1}), positions=5)
    ahead.standard_normal(0, 10)
    with pytest.raises(MemoryError, match="no room at 1"):
        ahead.standard_normal(1, 10)
    assert ahead.standard_normal(2, 10).shape == (10,)
    finish(ahead)


def workers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("dpexp-noise-ahead")]


def wait_for_no_workers():
    gc.collect()  # a caught error keeps what its frames hold
    for thread in workers():
        thread.join(timeout=10)
    assert not workers()


def test_the_thread_ends_after_the_last_position():
    wait_for_no_workers()
    ahead = NoiseAhead(GaussianNoise(Stream.keyed_by(0)), positions=3)
    for t in range(3):
        assert len(workers()) == min(t, 1)
        ahead.standard_normal(t, 1000)
    wait_for_no_workers()


def test_the_thread_ends_with_its_owner_when_training_stops_early():
    wait_for_no_workers()
    ahead = NoiseAhead(GaussianNoise(Stream.keyed_by(0)), positions=100)
    for t in (0, 1, 7):
        ahead.standard_normal(t, 1000)
    assert len(workers()) == 1
    del ahead
    wait_for_no_workers()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda ahead: pickle.loads(pickle.dumps(ahead))])
def test_a_copy_draws_the_same_and_carries_no_draws(copied):
    ahead = NoiseAhead(GaussianNoise(Stream.keyed_by(0)), positions=5)
    expected = GaussianNoise(Stream.keyed_by(0)).standard_normal(1, 100_000)
    ahead.standard_normal(0, 100_000)
    assert len(pickle.dumps(ahead)) < 1000
    np.testing.assert_array_equal(copied(ahead).standard_normal(1, 100_000), expected)
    finish(ahead)


def test_the_key_is_not_shown():
    ahead = NoiseAhead(SecureGaussianNoise(Stream.secret()), positions=5)
    assert repr(ahead) == "NoiseAhead(SecureGaussianNoise(stream=Stream()), positions=5)"


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=60
    )


START = """
import os, signal, sys, threading, time
import numpy as np
from dpexp.noise import GaussianNoise, NoiseAhead, SecureGaussianNoise
from dpexp.streams import Stream
noise = SecureGaussianNoise(Stream.keyed_by(0))
ahead = NoiseAhead(noise, positions=9)
ahead.standard_normal(0, 1_000_000)  # leaves a draw of some 40 ms behind
"""


def test_a_fork_in_the_middle_of_a_draw_draws_for_itself():
    done = run(
        START
        + """
child = os.fork()
same = (ahead.standard_normal(1, 1_000_000) == noise.standard_normal(1, 1_000_000)).all()
if not child:
    os._exit(0 if same else 1)
print(same, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert (done.returncode, done.stdout) == (0, "True 0\n"), done.stderr


def test_leaving_in_the_middle_of_a_draw_is_clean():
    done = run(START + "print(threading.active_count())")
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


def test_an_interrupt_in_the_middle_of_a_draw_leaves_the_noise_usable():
    done = run(
        START
        + """
try:
    signal.raise_signal(signal.SIGINT)
    ahead.standard_normal(1, 1_000_000)
except KeyboardInterrupt:
    print((ahead.standard_normal(1, 100) == noise.standard_normal(1, 100)).all())
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
