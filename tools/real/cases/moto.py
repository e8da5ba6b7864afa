"""moto: S3 in memory, and the service that lends the credentials of a role."""

import os
import sys
import urllib.request

import buckets
from servers.process import Process
from tidegate import Failed

QUICK = True
PIP = ("moto[server]", "pyproj")


class Suite:
    def __init__(self, world):
        binary = os.path.join(os.path.dirname(sys.executable), "moto_server")
        self.process = Process([binary, "-H", "127.0.0.1", "-p", "{port}"], world.path("moto", ""), "/moto-api/")
        self.url = self.process.url
        buckets.make_bucket(self.url)
        self.bucket = buckets.s3(self.url)

    def stop(self):
        self.process.stop()


def role(s, w, n):
    """The token in a file is exchanged for the credentials of a role, which sign the requests."""
    place = w.place(n)
    token = os.path.join(place, "token")
    with open(token, "w", encoding="utf-8") as file:
        file.write("header.claims.signature\n")
    env = {
        "AWS_WEB_IDENTITY_TOKEN_FILE": token,
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/reader",
        "AWS_ENDPOINT_URL_STS": s.url,
    }
    bucket = buckets.Bucket(s.url, "s3", ("--region", "us-east-1", "--credentials", "web-identity"), env)
    bucket("put", token, "--as", "role/token", cwd=place).ok()
    bucket("get", "role/token", "-o", os.path.join(place, "got"), cwd=place).ok()
    env["AWS_ROLE_ARN"] = ""
    refused = bucket("ls", cwd=place)
    if refused.code != 2 or "AWS_ROLE_ARN" not in refused.err:
        raise Failed(f"without a role: exit {refused.code}: {refused.err}")


def odd(s, w, n):
    """Keys that are no paths are listed as they are."""
    place = w.place(n)
    for key in ("odd//double", "odd/../dots", "odd/plain"):
        request = urllib.request.Request(f"{s.url}/{buckets.BUCKET}/{key}", b"abc", method="PUT")
        urllib.request.urlopen(request, timeout=20).close()
    listed = s.bucket("ls", "odd", cwd=place).ok().out
    keys = [line.split("  ")[-1] for line in listed.splitlines()]
    if keys != ["odd/../dots", "odd//double", "odd/plain"]:
        raise Failed(f"listed are {keys}")


CASES = {**buckets.CASES, "role": role, "odd": odd}
