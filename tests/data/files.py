"""A small data set in MNIST's four files, and a web server for them."""

import contextlib
import gzip
import hashlib
import http.server
import io
import struct
import tarfile
import threading
from pathlib import Path

import numpy as np

TRAIN_PIXELS = np.arange(7 * 2 * 3, dtype=np.uint8).reshape(7, 2, 3) * 6
TRAIN_LABELS = np.array([0, 1, 2, 0, 1, 2, 0], dtype=np.uint8)
TEST_PIXELS = 255 - TRAIN_PIXELS[:4]
TEST_LABELS = np.array([2, 1, 0, 2], dtype=np.uint8)


def idx(array, *, magic):
    return struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.tobytes()


def images(array):
    return idx(array, magic=2051)


def labels(array):
    return idx(array, magic=2049)


FILES = {
    "train-images-idx3-ubyte": images(TRAIN_PIXELS),
    "train-labels-idx1-ubyte": labels(TRAIN_LABELS),
    "t10k-images-idx3-ubyte": images(TEST_PIXELS),
    "t10k-labels-idx1-ubyte": labels(TEST_LABELS),
}


def coloured(rows, classes, seed=0):
    """Noisy images of one colour, which is the class: shape (rows, 3, 32, 32); and their classes."""
    rng = np.random.default_rng(seed)
    classes = np.arange(rows) % classes
    levels = np.stack([classes % 3, classes // 3 % 3, classes // 9], axis=1)
    pixels = 40 + 85 * levels[:, :, None, None] + 20 * rng.standard_normal((rows, 3, 32, 32))
    return pixels.clip(0, 255).astype(np.uint8), classes


def cifar_records(pixels, *labels):
    """A file of records as those of CIFAR: bytes of label, then three planes."""
    columns = [np.asarray(column, np.uint8)[:, None] for column in labels]
    return np.hstack([*columns, pixels.reshape(len(pixels), -1)]).tobytes()


def cifar10(rows_of_each=40):
    """The six files of CIFAR-10, of ten classes that can be told apart."""
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    return {name: cifar_records(*coloured(rows_of_each, 10, seed)) for seed, name in enumerate(names)}


def cifar100(rows=200):
    """The two files of CIFAR-100, of twenty classes."""
    files = {}
    for seed, name in enumerate(["train.bin", "test.bin"]):
        pixels, classes = coloured(rows, 20, seed + 10)
        files[name] = cifar_records(pixels, classes, classes)
    return files


def overrides(group, folder, files):
    """What makes a data set read these files, which are placed in the folder."""
    place(folder, files)
    known = ",".join(f"{name}:{digest}" for name, digest in digests(files).items())
    return [f"{group}.root={folder}", f"{group}.sha256={{{known}}}"]


def digests(files):
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def place(folder, files, *, suffix=""):
    """Writes the files into a folder; with the suffix `.gz`, compressed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / (name + suffix)).write_bytes(gzip.compress(content) if suffix else content)
    return folder


def pack(path, files):
    """Writes an archive as `npm pack` does."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/data/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def install_npm(folder: Path, script: str):
    """Puts an executable named npm into the folder, which becomes the only one on a PATH."""
    folder.mkdir(exist_ok=True)
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(0o755)


class WebServer(http.server.ThreadingHTTPServer):
    """Serves each of `files` at `/name.gz`; keeps the paths that it was asked for."""

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies = {f"/{name}.gz": gzip.compress(content) for name, content in files.items()}
        self.cut_short: set[str] = set()
        self.asked: list[str] = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        body = self.server.bodies.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        whole = self.path not in self.server.cut_short
        self.wfile.write((body or b"")[: None if whole else 10])

    def log_message(self, format, *args):
        pass


@contextlib.contextmanager
def serving(files):
    with WebServer(files) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
