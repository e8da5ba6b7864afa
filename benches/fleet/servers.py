"""The brokers of the bench: each in a directory of its own, on loopback, with its durable settings.

What is missing is installed by its package name. RabbitMQ and PostgreSQL run as private nodes, so that they
can be killed. SQS, Pub/Sub and Kafka are the servers that the tests of the queues use; they keep nothing on
disk, so they are not restarted.
"""

import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def is_open(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def wait_for(port, opens=True, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_open(port) == opens:
            return
        time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}" if opens else f"port {port} is still open")


def installed(program, package):
    if not shutil.which(program):
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", package], check=True, **QUIET)


class Server:
    """A process that keeps its data when it is killed and started again."""

    can_restart = True

    def __init__(self, folder, command, port, url, env=None):
        self.folder, self.command, self.port, self.url, self.env = folder, command, port, url, env
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                                        start_new_session=True, **QUIET)
        wait_for(self.port)

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def restart(self):
        self.kill()
        # The process is a script; the server that it has started may live a moment longer.
        wait_for(self.port, opens=False)
        self.start()

    stop = kill


class File:
    """A queue in a file: nothing runs."""

    can_restart = False
    url = "tasks.db"

    def stop(self):
        pass


def sqlite(_):
    return File()


def redis(folder):
    installed("redis-server", "redis-server")
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes",
               "--appendfsync", "everysec", "--save", "", "--dir", str(folder)]
    return Server(folder, command, port, f"redis://127.0.0.1:{port}/bench")


def nats(folder):
    installed("nats-server", "nats-server")
    port = free_port()
    config = folder / "nats.conf"
    # Versions before 2.10 do not know `sync_interval` in this place.
    version = subprocess.run(["nats-server", "--version"], capture_output=True, text=True).stdout
    old = tuple(int(part) for part in version.strip().rsplit("v", 1)[-1].split(".")[:2]) < (2, 10)
    sync = "" if old else ", sync_interval: always"
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}/js"{sync} }}\n')
    return Server(folder, ["nats-server", "-c", str(config)], port, f"nats://127.0.0.1:{port}/bench")


def rabbitmq(folder):
    script = "/usr/lib/rabbitmq/bin/rabbitmq-server"
    if not Path(script).exists():
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "rabbitmq-server"], check=True, **QUIET)
    port, dist = free_port(), free_port()
    home = folder / "rabbitmq"
    home.mkdir()
    (home / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "RABBITMQ_NODENAME": f"bench-{port}@localhost",
           "RABBITMQ_DIST_PORT": str(dist), "RABBITMQ_MNESIA_BASE": str(home / "data"),
           "RABBITMQ_LOG_BASE": str(home / "log"), "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
           "RABBITMQ_CONF_ENV_FILE": str(home / "none"), "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
           "RABBITMQ_PID_FILE": str(home / "pid"), "ERL_EPMD_ADDRESS": "127.0.0.1",
           "ERL_FLAGS": "-kernel inet_dist_use_interface {127,0,0,1}"}
    return Server(home, [script], port, f"amqp://guest:guest@127.0.0.1:{port}/bench", env)


class Postgres:
    """A private cluster, started by its own tools, which refuse to run as root."""

    can_restart = True

    def __init__(self, folder):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        if not found:
            subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "postgresql"], check=True, **QUIET)
            found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        self.bin, self.port = found[-1], free_port()
        self.home = folder / "postgres"
        self.home.mkdir()
        # The server's user must get there.
        folder.chmod(0o755)
        if os.getuid() == 0:
            shutil.chown(self.home, "postgres")
        self.url = f"postgres://postgres@127.0.0.1:{self.port}/postgres?queue=bench"
        self.tool("initdb", "-D", str(self.home / "data"), "-A", "trust", "-U", "postgres", "--no-sync")
        self.control("start")

    def tool(self, name, *args):
        user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        subprocess.run([*user, f"{self.bin}/{name}", *args], check=True, cwd=self.home, stdin=subprocess.DEVNULL, **QUIET)

    def control(self, how):
        options = f"-p {self.port} -k {self.home} -c listen_addresses=127.0.0.1"
        start = ["-l", str(self.home / "log"), "-o", options] if how != "stop" else []
        self.tool("pg_ctl", "-D", str(self.home / "data"), "-w", "-m", "immediate", *start, how)

    def restart(self):
        self.control("restart")

    def stop(self):
        self.control("stop")


class Piped:
    """A server that says where it listens and ends with its standard input."""

    can_restart = False

    def __init__(self, command, folder, url):
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        said = self.process.stdout.readline().strip()
        if not said:
            sys.exit(f"{command[0]} did not start")
        self.url = url(said)

    def stop(self):
        self.process.kill()
        self.process.wait()


def sqs(folder):
    home = TARGET / "fleet-sqs"
    home.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json", "sqs.mjs"):
        shutil.copy(ROOT / "tools" / "queues" / name, home / name)
    if not (home / "node_modules" / "fauxqs").exists():
        subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=home, check=True)

    def url(port):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/", b'{"QueueName":"bench","Attributes":{}}',
            {"x-amz-target": "AmazonSQS.CreateQueue", "content-type": "application/x-amz-json-1.0"})
        urllib.request.urlopen(request, timeout=30).read()
        return f"sqs+http://127.0.0.1:{port}/000000000000/bench"

    return Piped(["node", "sqs.mjs", "0"], home, url)


def pubsub(folder):
    places = [os.environ.get("PUBSUB_EMULATOR", ""), "/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk",
              "/opt/google-cloud-sdk", str(Path.home() / "google-cloud-sdk")]
    jars = [place for place in places if place.endswith(".jar")]
    for place in filter(None, places):
        jars += glob.glob(f"{place}/platform/pubsub-emulator/lib/*-all.jar")
    if not jars:
        sys.exit("the Pub/Sub emulator is missing: install google-cloud-cli-pubsub-emulator and a Java runtime, or "
                 "name the directory of a Google Cloud SDK in PUBSUB_EMULATOR")
    port = free_port()
    command = ["java", "-Xmx256m", "-jar", jars[0], "--host=127.0.0.1", f"--port={port}"]
    server = Server(folder, command, port, f"pubsub://bench/tasks?endpoint=http://127.0.0.1:{port}")
    server.can_restart = False
    return server


def kafka(folder):
    # All crates: cargo then selects the features with which the tests are built, and nothing is compiled twice.
    subprocess.run(["cargo", "build", "--quiet", "--locked", "--workspace", "--example", "kafka_server"],
                   cwd=ROOT, check=True)
    program = str(TARGET / "debug" / "examples" / "kafka_server")
    return Piped([program], folder, lambda hosts: f"kafka://{hosts}/bench?partitions=8")


QUEUES = {"sqlite": sqlite, "postgres": Postgres, "redis": redis, "rabbitmq": rabbitmq, "nats": nats, "sqs": sqs,
          "pubsub": pubsub, "kafka": kafka}
# The shortest lease that the server takes, in seconds; 2 where it takes any.
LEASE = {"pubsub": 10, "kafka": 6}
