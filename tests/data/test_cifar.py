import gzip
import io
import tarfile

import numpy as np
import pytest

from dpexp._validate import UserError
from dpexp.data import CIFAR10, CIFAR100
from dpexp.data.cifar import read_records
from tests.data.files import digests

RNG = np.random.default_rng(0)


def records(rows, *, labels):
    """A file of records with the given columns of labels, and its pixels `(rows, 3, 32, 32)`."""
    pixels = RNG.integers(256, size=(rows, 3, 32, 32), dtype=np.uint8)
    return np.hstack([np.asarray(labels, np.uint8).T, pixels.reshape(rows, -1)]).tobytes(), pixels


CIFAR10_FILES = {
    f"data_batch_{number}.bin": records(3, labels=[[number, 0, 9]])[0] for number in range(1, 6)
} | {"test_batch.bin": records(2, labels=[[4, 5]])[0]}
CIFAR100_FILES = {
    "train.bin": records(4, labels=[[0, 19, 3, 3], [99, 0, 50, 51]])[0],
    "test.bin": records(1, labels=[[7], [70]])[0],
}


def tarball(folder, files):
    """The members as in the published archives: inside one folder."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(written.getvalue())


def cifar(kind=CIFAR10, files=CIFAR10_FILES, **changes):
    declared = {
        "name": "small",
        "num_examples": 15,
        "num_classes": 10 if kind is CIFAR10 else 100,
        "dimensions": 3072,
        "validation_split": "private",
        "test_split": "public",
        "root": None,
        "mirrors": [],
        "sha256": digests(files),
    }
    return kind(**(declared | ({} if kind is CIFAR10 else {"label": "fine"}) | changes))


def placed(folder, files):
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return str(folder)


@pytest.mark.parametrize("columns", [1, 2])
def test_records_are_read_as_written_plane_by_plane(columns):
    labels = RNG.integers(10, size=(columns, 5), dtype=np.uint8)
    content, pixels = records(5, labels=labels)
    found, images = read_records("f", content, labels=columns)
    np.testing.assert_array_equal(found, labels.T)
    np.testing.assert_array_equal(images, pixels)
    # The format, byte by byte: labels, then 1024 red, 1024 green and 1024 blue, row by row.
    record = content[3073 + columns - 1 :][: 3072 + columns]
    assert images[1, 2, 31, 7] == record[columns + 2 * 1024 + 31 * 32 + 7]


@pytest.mark.parametrize("size", [0, 1, 3072, 3074, 2 * 3073 - 1])
def test_a_file_that_is_no_whole_number_of_records_is_refused_with_its_name_and_size(size):
    with pytest.raises(UserError, match=rf"size of the-file = {size}: expected a positive multiple of 3073"):
        read_records("the-file", bytes(size), labels=1)


def test_the_five_training_files_are_joined_in_order(tmp_path):
    splits = cifar(root=placed(tmp_path / "cifar-10-batches-bin", CIFAR10_FILES)).load()
    assert splits.train.inputs.shape == (15, 3072)
    assert splits.train.inputs.dtype == np.float32
    assert splits.train.targets.tolist() == [n for number in range(1, 6) for n in (number, 0, 9)]
    assert splits.test.targets.tolist() == [4, 5]
    _, pixels = read_records("f", CIFAR10_FILES["data_batch_2.bin"], labels=1)
    np.testing.assert_array_equal(splits.train.inputs[3], pixels[0].reshape(-1).astype(np.float32) / 255)


@pytest.mark.parametrize("folder", ["", "cifar-10-batches-bin", "small"])
def test_files_are_found_in_the_folders_that_the_archive_makes(tmp_path, folder):
    placed(tmp_path / "root" / folder, CIFAR10_FILES)
    assert len(cifar(root=str(tmp_path / "root")).load().train) == 15


@pytest.mark.parametrize(("label", "targets"), [("fine", [99, 0, 50, 51]), ("coarse", [0, 19, 3, 3])])
def test_the_hundred_classes_have_a_fine_and_a_coarse_label(tmp_path, label, targets):
    root = placed(tmp_path / "root", CIFAR100_FILES)
    declared = cifar(CIFAR100, CIFAR100_FILES, root=root, label=label, num_classes=100)
    assert declared.load().train.targets.tolist() == targets


def test_an_image_keeps_its_shape_where_that_is_declared(tmp_path):
    root = placed(tmp_path / "root", CIFAR10_FILES)
    images = cifar(root=root, shape=[3, 32, 32]).load().train.inputs
    np.testing.assert_array_equal(images.reshape(15, -1), cifar(root=root).load().train.inputs)
    assert images.shape == (15, 3, 32, 32)


def test_the_archive_is_read_whole_as_the_user_placed_it(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(tarball("cifar-10-batches-bin", CIFAR10_FILES))
    assert len(cifar(root=str(tmp_path)).load().train) == 15


def test_a_placed_archive_that_is_cut_short_is_refused_with_its_path(tmp_path):
    whole = tarball("cifar-10-batches-bin", CIFAR10_FILES)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"data\.root: .*cifar-10-binary\.tar\.gz: its archive is damaged"):
        cifar(root=str(tmp_path)).load()


def test_the_archive_of_a_mirror_fills_the_cache(web, cache):
    web.bodies["/cifar.tar.gz"] = tarball("cifar-10-batches-bin", CIFAR10_FILES)
    for _ in range(2):
        assert len(cifar(mirrors=[f"{web.url}/cifar.tar.gz"]).load().train) == 15
    assert web.asked == ["/cifar.tar.gz"]
    assert {path.name for path in cache.glob("*.bin")} == set(CIFAR10_FILES)


def test_a_foreign_label_is_refused_with_its_file_and_its_row_in_it(tmp_path):
    files = CIFAR10_FILES | {"data_batch_3.bin": records(3, labels=[[0, 10, 1]])[0]}
    declared = cifar(files=files, root=placed(tmp_path / "root", files))
    with pytest.raises(
        UserError, match=r"label in row 1 \(from 0\) of data_batch_3\.bin = 10: expected a class"
    ):
        declared.load()


@pytest.mark.parametrize("label", ["course", None])
def test_a_label_that_there_is_not_is_refused(label):
    with pytest.raises(UserError, match=r"data\.label"):
        cifar(CIFAR100, CIFAR100_FILES, label=label)
