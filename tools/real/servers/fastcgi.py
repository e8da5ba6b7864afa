"""Serves a FastCGI program over HTTP on a free loopback port.

MapServer and QGIS Server are FastCGI programs. A web server in front of them is one more thing to
install and to configure, and this is all of it that is needed: a request becomes one record stream
on a socket, the answer is passed on.
"""

import http.server
import os
import queue
import re
import socket
import struct
import subprocess
import threading

BEGIN, PARAMS, STDIN, STDOUT, STDERR, END = 1, 4, 5, 6, 7, 3


def record(kind, body):
    return struct.pack(">BBHHBB", 1, kind, 1, len(body), 0, 0) + body


def pair(name, value):
    name, value = name.encode(), value.encode()
    size = lambda b: bytes([len(b)]) if len(b) < 128 else struct.pack(">I", len(b) | 0x80000000)
    return size(name) + size(value) + name + value


class Worker:
    """One process of the program, with the socket on which it accepts."""

    def __init__(self, command, env, directory, number, log):
        self.path = os.path.join(directory, f"fcgi-{number}.sock")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen(16)
        self.process = subprocess.Popen(command, stdin=listener, stdout=log, stderr=log, env=env, cwd=directory)
        listener.close()

    def ask(self, params, body, timeout=60):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(timeout)
            s.connect(self.path)
            data = b"".join(pair(n, v) for n, v in params.items())
            out = record(BEGIN, struct.pack(">HB5x", 1, 0)) + record(PARAMS, data) + record(PARAMS, b"")
            for at in range(0, len(body), 65535):
                out += record(STDIN, body[at : at + 65535])
            s.sendall(out + record(STDIN, b""))
            file, answer = s.makefile("rb"), []
            while True:
                head = file.read(8)
                if len(head) < 8:
                    break
                _, kind, _, size, pad, _ = struct.unpack(">BBHHBB", head)
                content = file.read(size)
                file.read(pad)
                if kind == STDOUT:
                    answer.append(content)
                elif kind == END:
                    break
            return b"".join(answer)


class Gateway:
    """An HTTP server in front of some workers. `log` is a list of every request and answer head."""

    def __init__(self, command, directory, env=None, workers=2):
        # A FastCGI program may take its settings from the process or from each request.
        extra, env = env or {}, dict(os.environ, **(env or {}))
        self.log = []
        with open(os.path.join(directory, "server.log"), "ab") as log:
            self.workers = [Worker(command, env, directory, n, log) for n in range(workers)]
        free = queue.Queue()
        for worker in self.workers:
            free.put(worker)
        gateway = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                path, _, query = self.path.partition("?")
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size)
                host, port = self.server.server_address[:2]
                params = {
                    "GATEWAY_INTERFACE": "CGI/1.1",
                    "REQUEST_METHOD": self.command,
                    "QUERY_STRING": query,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "CONTENT_LENGTH": str(size),
                    "SERVER_NAME": host,
                    "SERVER_PORT": str(port),
                    "SERVER_PROTOCOL": "HTTP/1.1",
                    "SCRIPT_NAME": "/",
                    "PATH_INFO": path,
                    "REQUEST_URI": self.path,
                    "HTTP_HOST": self.headers.get("Host", ""),
                    "HTTP_ACCEPT": self.headers.get("Accept", ""),
                    **extra,
                }
                worker = free.get()
                try:
                    answer = worker.ask(params, body)
                except OSError as error:
                    answer = f"Status: 502 Bad Gateway\r\n\r\n{error}".encode()
                finally:
                    free.put(worker)
                # MapServer ends its lines with CR LF, QGIS with LF.
                head, *content = re.split(rb"\r?\n\r?\n", answer, maxsplit=1)
                content = b"".join(content)
                lines = [line.split(b":", 1) for line in head.splitlines() if b":" in line]
                headers = [(n.decode("latin-1").strip(), v.decode("latin-1").strip()) for n, v in lines]
                status = next((int(v.split()[0]) for n, v in headers if n.lower() == "status"), 200)
                gateway.log.append((self.path, status, content[:400]))
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in ("status", "content-length", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            try:
                worker.process.wait(5)
            except subprocess.TimeoutExpired:
                worker.process.kill()
