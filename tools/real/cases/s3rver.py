"""s3rver: S3 over a directory, in Node. It checks signatures."""

import os

import buckets
from servers.process import Process

QUICK = False
NPM = ("s3rver",)
PIP = ("pyproj",)


class Suite:
    def __init__(self, world):
        binary = os.path.join(world.node, "node_modules", ".bin", "s3rver")
        folder = world.path("s3rver", "")
        command = [binary, "-a", "127.0.0.1", "-p", "{port}", "-d", folder, "--configure-bucket", buckets.BUCKET]
        self.process = Process(command, folder)
        # It takes `bytes=-10` for the first bytes, which is noticed by the Content-Range.
        self.bucket = buckets.s3(self.process.url, suffix=False)

    def stop(self):
        self.process.stop()


CASES = buckets.CASES
