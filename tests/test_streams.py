import hashlib
import pickle

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from dpexp.streams import Keystream, Stream


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


# RFC 8439 (June 2018), appendix A.1, test vectors 1 and 5: key zero, block counter zero.
@pytest.mark.parametrize(
    ("position", "first_words"),
    [(0, "76b8e0ada0f13d90405d6ae55386bd28"), (2 << 56, "c2c64d378cd536374ae204b9ef933fcd")],
)
def test_the_key_stream_is_chacha20(position, first_words):
    words = Keystream(bytes(32), position).words(2)
    assert words.astype("<u8").tobytes().hex() == first_words


def test_the_key_stream_is_that_of_the_library_for_the_derived_key_and_nonce():
    stream = Stream.keyed_by(3)
    key = hashlib.sha256(stream.key + b"chacha20").digest()
    cipher = Cipher(ChaCha20(key, bytes(8) + (5).to_bytes(8, "little")), mode=None).encryptor()
    source = stream.keystream(5)
    found = np.concatenate([source.words(count) for count in (1, 0, 7, 1000)])
    assert found.astype("<u8").tobytes() == cipher.update(bytes(8 * 1008))


def test_key_streams_of_other_positions_names_and_keys_share_no_word():
    stream = Stream.keyed_by(3)
    others = [stream.keystream(1), stream.child("noise").keystream(0), Stream.keyed_by(4).keystream(0)]
    words = [source.words(1000) for source in [stream.keystream(0), *others]]
    assert np.unique(np.concatenate(words)).size == 4000


@pytest.mark.parametrize("position", [-1, 2**64])
def test_a_position_beyond_the_nonce_is_refused_without_showing_the_key(position):
    stream = Stream.secret()
    with pytest.raises(OverflowError) as caught:
        stream.keystream(position)
    assert stream.key.hex() not in str(caught.value)


def test_a_key_stream_does_not_show_or_give_away_its_key():
    source = Stream.secret().keystream(0)
    assert repr(source).startswith("<dpexp.streams.Keystream object at")
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(source)
