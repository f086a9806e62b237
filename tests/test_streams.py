import numpy as np
import pytest

from dpexp.streams import Stream


def draws(stream, position=0):
    return stream.generator(position).standard_normal(8)


def test_a_draw_depends_on_key_name_and_position_alone():
    stream = Stream.keyed_by(3)
    again = Stream.keyed_by(3)
    np.testing.assert_array_equal(draws(stream.child("noise"), 5), draws(again.child("noise"), 5))


@pytest.mark.parametrize(
    "other",
    [
        Stream.keyed_by(3).child("noise").generator(6),
        Stream.keyed_by(3).child("lots").generator(5),
        Stream.keyed_by(4).child("noise").generator(5),
    ],
    ids=["position", "name", "key"],
)
def test_any_change_gives_other_draws(other):
    one = draws(Stream.keyed_by(3).child("noise"), 5)
    assert not np.isin(one, other.standard_normal(1000)).any()


def test_secret_streams_differ_at_every_call():
    assert Stream.secret().key != Stream.secret().key
    assert len(Stream.secret().key) == 32


def test_every_bit_of_the_key_matters():
    key = bytearray(32)
    reference = draws(Stream(bytes(key)))
    for byte in range(32):
        changed = key.copy()
        changed[byte] = 1
        assert not np.array_equal(reference, draws(Stream(bytes(changed))))


def test_the_key_is_not_shown():
    stream = Stream.secret()
    assert stream.key.hex() not in repr(stream)
    assert repr(stream) == "Stream()"
