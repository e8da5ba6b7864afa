"""Runs the program under test, bounded in time, in a directory of its own."""

import json
import os
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.path.abspath(os.environ.get("TIDEGATE") or os.path.join(ROOT, "target/debug/tidegate"))


class Failed(Exception):
    """A case does not hold; the text says in which features and cells."""


class Outcome:
    def __init__(self, code, out, err, seconds):
        self.code = code
        self.out = out
        self.err = err
        self.seconds = seconds

    @property
    def result(self):
        return json.loads(self.out)

    def ok(self, *codes):
        if self.code not in (codes or (0,)):
            raise Failed(f"exit {self.code}: {self.err.strip()[-700:]}")
        return self


def tidegate(*arguments, cwd, env=None, timeout=120):
    begin = time.monotonic()
    try:
        done = subprocess.run(
            [BINARY, *map(str, arguments)], cwd=cwd, env=dict(os.environ, **(env or {})), text=True,
            capture_output=True, timeout=timeout, check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise Failed(f"still at it after {timeout} s: tidegate {' '.join(map(str, arguments))}") from late
    return Outcome(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)
