"""`python -m tests.faults.traced TRACE …`: the command line with a trace of every noise vector drawn.

The trace is a line for each vector, its SHA-256, on disk before the vector is handed out. It is kept by this
script and not by dpexp. With FAULTS_CHILDREN the script serves as a fork server: it imports everything once
and runs one child for each line of its standard input, `TRACE argument argument …`, printing its process id,
and then its exit code.
"""

import contextlib
import hashlib
import os
import sys

from dpexp.noise import GaussianNoise


def traced(path):
    """Patches the noise source of this process."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    standard_normal = GaussianNoise.standard_normal

    def draw(self, position, size):
        drawn = standard_normal(self, position, size)
        os.write(descriptor, (hashlib.sha256(drawn.tobytes()).hexdigest() + "\n").encode())
        os.fsync(descriptor)
        return drawn

    GaussianNoise.standard_normal = draw


def main(trace, arguments):
    """One run of the command line."""
    from dpexp.cli import main as command_line

    traced(trace)
    sys.argv = ["dpexp", *arguments]
    command_line()


def _serve():
    import mlflow  # noqa: F401
    import torch

    import dpexp.training  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        trace, *arguments = line.split()
        child = os.fork()
        if child == 0:
            code = 70
            with open(f"{trace}.log", "a") as log, contextlib.suppress(BaseException):
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                try:
                    main(trace, arguments)
                except SystemExit as end:
                    code = int(end.code or 0)
                except BaseException:  # noqa: BLE001 - whatever it is, it goes into the log
                    import traceback

                    traceback.print_exc()
                    sys.stderr.flush()
            os._exit(code)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    if os.environ.get("FAULTS_CHILDREN"):
        _serve()
    else:
        main(sys.argv[1], sys.argv[2:])
