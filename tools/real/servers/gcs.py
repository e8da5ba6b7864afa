"""The front of Google Cloud Storage before a store that speaks S3: tokens and the names of headers."""

import base64
import http.client
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

EMAIL = "reader@project.iam.gserviceaccount.com"
INSTANCE_TOKEN = "token-of-the-instance"


def service_account():
    """The JSON of a service account with a new key, and its public key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    kinds = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    account = {
        "type": "service_account",
        "client_email": EMAIL,
        "private_key_id": "key-1",
        "private_key": key.private_bytes(*kinds).decode(),
    }
    return account, key.public_key()


def decoded(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


class Front:
    def __init__(self, port, public):
        front = self
        self.metadata = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.path.startswith("/computeMetadata/"):
                    front.metadata += 1
                    known = self.headers.get("Metadata-Flavor") == "Google"
                    token = {"access_token": INSTANCE_TOKEN, "expires_in": 3600, "token_type": "Bearer"}
                    return self.reply(200 if known else 403, [], json.dumps(token if known else {}).encode())
                if not front.knows(self.headers.get("Authorization", ""), public):
                    return self.reply(401, [], b"<Error><Code>AuthenticationRequired</Code></Error>")
                names = {"x-goog-copy-source": "x-amz-copy-source"}
                drop = ("authorization", "host", "connection")
                headers = {names.get(n.lower(), n): v for n, v in self.headers.items() if n.lower() not in drop}
                # The store takes any signature; without one it takes us for a stranger.
                headers["Authorization"] = "AWS4-HMAC-SHA256 Credential=A/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
                store = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                store.request(self.command, self.path, body, headers)
                got = store.getresponse()
                content = got.read()
                skip = ("connection", "transfer-encoding", "content-length", "date", "server")
                kept = [(n, v) for n, v in got.getheaders() if n.lower() not in skip]
                length = got.getheader("Content-Length") if self.command == "HEAD" else None
                return self.reply(got.status, kept, content, length)

            def reply(self, status, headers, content, length=None):
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", length or str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def knows(authorization, public):
        """Whether the token is that of the instance, or one that the service account has signed."""
        kind, _, token = authorization.partition(" ")
        if kind != "Bearer":
            return False
        if token == INSTANCE_TOKEN:
            return True
        try:
            head, claims, signature = token.split(".")
            public.verify(decoded(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
        except (ValueError, InvalidSignature):
            return False
        claims = json.loads(decoded(claims))
        return claims["iss"] == EMAIL and claims["exp"] > time.time() and "scope" in claims

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
