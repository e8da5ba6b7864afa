"""moto: S3 in memory."""

import os
import sys

import buckets
from servers.process import Process

QUICK = True
PIP = ("moto[server]", "pyproj")


class Suite:
    def __init__(self, world):
        binary = os.path.join(os.path.dirname(sys.executable), "moto_server")
        self.process = Process([binary, "-H", "127.0.0.1", "-p", "{port}"], world.path("moto", ""), "/moto-api/")
        self.url = self.process.url
        buckets.make_bucket(self.url)

    def stop(self):
        self.process.stop()


CASES = {
    "objects": lambda s, w, n: buckets.objects(s.url, w, n),
    "layer": lambda s, w, n: buckets.layer(s.url, w, n),
}
