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
