//! An SQS server of the test's own: fauxqs, installed under target/ from `tools/queues`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The server. It ends with its standard input, at the latest when the test process ends.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server that the tests of this binary share.
pub(crate) fn shared() -> Result<u16, String> {
    static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();
    SERVER.get_or_init(|| start(0)).as_ref().map(|server| server.port).map_err(Clone::clone)
}

/// Starts a server on this port; 0 means a free one.
pub(crate) fn start(port: u16) -> Result<Server, String> {
    let dir = installed()?;
    let mut child = Command::new("node")
        .args(["sqs.mjs", &port.to_string()])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("node cannot be started: {e}; install Node.js 20 or later"))?;
    let output = child.stdout.take().ok_or("the server has no output")?;
    let mut server = Server { child, port };
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).map_err(|e| e.to_string())?;
    server.port = line.trim().parse().map_err(|_| format!("the SQS server did not start: {line:?}"))?;
    Ok(server)
}

/// The directory with the packages. The first test of all processes installs them.
fn installed() -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/queues");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("queues");
    let say = |e: std::io::Error| format!("{}: {e}", dir.display());
    std::fs::create_dir_all(&dir).map_err(say)?;
    let lock = std::fs::File::create(dir.join("install.lock")).map_err(say)?;
    lock.lock().map_err(say)?;
    let read = |path: PathBuf| std::fs::read(path).ok();
    let is_done = read(dir.join("package-lock.json")) == read(source.join("package-lock.json"))
        && dir.join("installed").exists();
    std::fs::copy(source.join("sqs.mjs"), dir.join("sqs.mjs")).map_err(say)?;
    if !is_done {
        for file in ["package.json", "package-lock.json"] {
            std::fs::copy(source.join(file), dir.join(file)).map_err(say)?;
        }
        let install = Command::new("npm")
            .args(["ci", "--silent", "--no-audit", "--no-fund"])
            .current_dir(&dir)
            .status()
            .map_err(|e| format!("npm cannot be started: {e}; install Node.js 20 or later with npm"))?;
        if !install.success() {
            return Err(format!("npm ci failed in {}", dir.display()));
        }
        std::fs::write(dir.join("installed"), "").map_err(say)?;
    }
    Ok(dir)
}

/// Creates a queue, by a plain request.
pub(crate) fn create(port: u16, name: &str) -> Result<(), String> {
    let attributes = if name.ends_with(".fifo") { r#"{"FifoQueue":"true"}"# } else { "{}" };
    let body = format!(r#"{{"QueueName":"{name}","Attributes":{attributes}}}"#);
    let end = Instant::now() + Duration::from_secs(30);
    let mut stream = loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(stream) => break stream,
            Err(e) if Instant::now() > end => return Err(e.to_string()),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    let request = format!(
        "POST / HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\nx-amz-target: AmazonSQS.CreateQueue\r\n\
         content-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|e| e.to_string())?;
    if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer) }
}
