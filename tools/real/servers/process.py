"""A server that is a program: started on a free loopback port, waited for, ended."""

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Process:
    """`command` is a list in which `{port}` stands for the port. It is up when `health` answers,
    with whatever status."""

    def __init__(self, command, directory, health="/", env=None, patience=90, port=None):
        os.makedirs(directory, exist_ok=True)
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [part.replace("{port}", str(self.port)) for part in command]
        env = {n: v.replace("{port}", str(self.port)) for n, v in (env or {}).items()}
        self.log = os.path.join(directory, "server.log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, cwd=directory, env=dict(os.environ, **env), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        end = time.monotonic() + patience
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"{command[0]} ended with {self.process.returncode}: {self.tail()}")
            try:
                urllib.request.urlopen(self.url + health, timeout=5).close()
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                if time.monotonic() > end:
                    self.stop()
                    raise RuntimeError(f"{command[0]} is not up: {self.tail()}") from None
                time.sleep(0.1)

    def tail(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()[-600:]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
