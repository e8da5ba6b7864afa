"""A window of a COG over HTTP: requests and bytes, beside GDAL's settings.

    window.py PYTHON COG COLUMN,ROW,WIDTH,HEIGHT -- OUR COMMAND WITH {url} AND {box}

PYTHON is one with rasterio. The server is here, on loopback: ranges, HEAD, an ETag, 404 for what lies beside the COG.
Every request counts, the bytes are those of the answers' bodies. Prints one line per program; exit code 1 if a
command fails or ours needs more requests or bytes than the best setting of GDAL.
"""

import http.server
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

READ = r"""
import sys, rasterio
from rasterio.windows import Window
with rasterio.open(sys.argv[1]) as file:
    print(int(file.read(window=Window(*map(int, sys.argv[2].split(",")))).astype("u8").sum()))
"""
PLACE = r"""
import sys, rasterio
with rasterio.open(sys.argv[1]) as file:
    column, row, width, height = map(int, sys.argv[2].split(","))
    left, top = file.transform * (column + 0.01, row + 0.01)
    right, bottom = file.transform * (column + width - 0.01, row + height - 0.01)
    print(f"{left!r},{bottom!r},{right!r},{top!r}")
"""
TUNED = {"GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR", "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": ".tif", "VSI_CACHE": "TRUE",
         "GDAL_HTTP_MERGE_CONSECUTIVE_RANGES": "YES"}
SETTINGS = {
    "GDAL as it comes": {},
    "GDAL, no listing": {"GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR"},
    "GDAL, tuned": TUNED,
    "GDAL, tuned, 32 KiB at open": {**TUNED, "GDAL_INGESTED_BYTES_AT_OPEN": "32768"},
    "GDAL, tuned, chunks of 512 KiB": {**TUNED, "CPL_VSIL_CURL_CHUNK_SIZE": "524288"},
    "GDAL, tuned, multirange": {**TUNED, "GDAL_HTTP_MULTIPLEX": "YES", "GDAL_HTTP_MULTIRANGE": "YES"},
}


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    content, name, log = b"", "", []

    def answer(self):
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if self.path != f"/{self.name}":
            return 404, b"", {}
        size, known = len(self.content), {"Accept-Ranges": "bytes", "ETag": '"1"'}
        if not wanted:
            return 200, self.content, known
        first = int(wanted[1])
        last = min(int(wanted[2] or size - 1), size - 1)
        if first > last:
            return 416, b"", known
        return 206, self.content[first : last + 1], {**known, "Content-Range": f"bytes {first}-{last}/{size}"}

    def reply(self, with_body):
        status, body, headers = self.answer()
        self.send_response(status)
        for head, value in {**headers, "Content-Length": len(body)}.items():
            self.send_header(head, str(value))
        self.end_headers()
        self.log.append((self.command, self.path, self.headers.get("Range"), len(body) if with_body else 0))
        if with_body:
            try:
                self.wfile.write(body)
            except ConnectionError:
                pass

    def do_GET(self):
        self.reply(True)

    def do_HEAD(self):
        self.reply(False)

    def log_message(self, *_):
        pass


def count(words, surroundings):
    """Requests, and bytes, of one command."""
    Server.log.clear()
    done = subprocess.run(words, env={**os.environ, **surroundings}, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    if os.environ.get("WINDOW_LOG"):
        print(*Server.log, sep="\n")
    return len(Server.log), sum(one[3] for one in Server.log)


def main():
    python, cog, window, _, *ours = sys.argv[1:]
    Server.content, Server.name = Path(cog).read_bytes(), Path(cog).name
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/{Server.name}"
    found = {name: count([python, "-c", READ, f"/vsicurl/{url}", window], one) for name, one in SETTINGS.items()}
    box = subprocess.run([python, "-c", PLACE, cog, window], check=True, capture_output=True, text=True).stdout.strip()
    own = count([word.replace("{url}", url).replace("{box}", box) for word in ours], {})
    for name, (requests, size) in {**found, "ours": own}.items():
        print(f"{name:32} {requests:3} requests  {size:9} bytes")
    server.shutdown()
    best = min(found.values())
    sys.exit(0 if own[0] <= best[0] and own[1] <= best[1] else 1)


if __name__ == "__main__":
    main()
