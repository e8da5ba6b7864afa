"""Google Cloud Storage: no emulator that a registry offers speaks its XML interface, which is that of
S3 but for the names of some headers and for who signs. So moto keeps the objects, and a small proxy
checks the tokens of a service account and translates the headers."""

import json
import os
import sys

import buckets
from servers.gcs import Front, service_account
from servers.process import Process
from tidegate import Failed

QUICK = True
PIP = ("moto[server]", "pyproj", "cryptography")


class Suite:
    def __init__(self, world):
        binary = os.path.join(os.path.dirname(sys.executable), "moto_server")
        self.process = Process([binary, "-H", "127.0.0.1", "-p", "{port}"], world.path("gcs", ""), "/moto-api/")
        buckets.make_bucket(self.process.url)
        account, public = service_account()
        self.account = world.path("gcs-account.json")
        with open(self.account, "w", encoding="utf-8") as file:
            json.dump(account, file)
        self.front = Front(self.process.port, public)
        env = {"GOOGLE_APPLICATION_CREDENTIALS": self.account}
        manifest = f'service_account: "file:{self.account}"'
        # A multipart upload has no MD5 sum there; moto gives one as S3 does.
        self.bucket = buckets.Bucket(self.front.url, "gs", (), env, manifest)

    def stop(self):
        self.front.stop()
        self.process.stop()


def anonymous(s, w, n):
    place = w.place(n)
    refused = buckets.Bucket(s.front.url, "gs", ("--anonymous",))("ls", cwd=place)
    if refused.code != 1 or "UNAUTHORIZED" not in refused.err:
        raise Failed(f"without a token: exit {refused.code}: {refused.err}")


def instance(s, w, n):
    """The token of the instance's metadata service, asked only because it is named."""
    place = w.place(n)
    env = {"GCE_METADATA_HOST": s.front.url.removeprefix("http://")}
    s.bucket("put", s.account, "--as", "instance/a", cwd=place).ok()
    asked = s.front.metadata
    bucket = buckets.Bucket(s.front.url, "gs", ("--credentials", "instance"), env)
    bucket("get", "instance/a", "-o", os.path.join(place, "a"), cwd=place).ok()
    if s.front.metadata != asked + 1:
        raise Failed(f"the metadata service was asked {s.front.metadata - asked} times")
    buckets.Bucket(s.front.url, "gs", (), env)("ls", cwd=place).ok(1)
    if s.front.metadata != asked + 1:
        raise Failed("the metadata service was asked though it was not named")


CASES = {**buckets.CASES, "anonymous": anonymous, "instance": instance}
