//! A second SQS server, moto, which verifies signatures. Installed under target/ from `tools/queues`.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a busy machine may need.
const UP: Duration = Duration::from_secs(180);

/// The server behind a shell, which ends it when its own standard input ends.
pub(crate) struct Moto {
    shell: Child,
    pub(crate) port: u16,
    /// The keys of a user who may use SQS.
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
}

impl Drop for Moto {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

impl Moto {
    /// Starts it with a user and a queue named `tasks`. From then on every request must be signed.
    pub(crate) fn start() -> Result<Moto, String> {
        let binary = installed()?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
        let port = free.local_addr().map_err(|e| e.to_string())?.port();
        drop(free);
        let script =
            "\"$1\" -H 127.0.0.1 -p \"$2\" </dev/null >/dev/null 2>&1 & pid=$!; read -r _; kill $pid";
        let shell = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(binary)
            .arg(port.to_string())
            .env("INITIAL_NO_AUTH_ACTION_COUNT", "4")
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let mut moto = Moto { shell, port, access_key: String::new(), secret_key: String::new() };
        let end = Instant::now() + UP;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if Instant::now() > end {
                return Err("moto_server did not start".into());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let iam = |form: &str| {
            let form = format!("Version=2010-05-08&UserName=worker&{form}");
            post(port, "iam", "content-type: application/x-www-form-urlencoded", &form)
        };
        iam("Action=CreateUser")?;
        let keys = iam("Action=CreateAccessKey")?;
        let element = |name: &str| {
            let found = keys.split_once(&format!("<{name}>")).and_then(|(_, rest)| rest.split_once('<'));
            found.map(|(text, _)| text.to_owned()).ok_or_else(|| format!("no {name} in {keys}"))
        };
        (moto.access_key, moto.secret_key) = (element("AccessKeyId")?, element("SecretAccessKey")?);
        let policy = "%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Effect%22%3A%22Allow%22\
                      %2C%22Action%22%3A%22sqs%3A%2A%22%2C%22Resource%22%3A%22%2A%22%7D%5D%7D";
        iam(&format!("Action=PutUserPolicy&PolicyName=sqs&PolicyDocument={policy}"))?;
        let headers = "content-type: application/x-amz-json-1.0\r\nx-amz-target: AmazonSQS.CreateQueue";
        post(port, "sqs", headers, r#"{"QueueName":"tasks"}"#)?;
        Ok(moto)
    }
}

/// A request whose signature nobody verifies; it names the service.
fn post(port: u16, service: &str, headers: &str, body: &str) -> Result<String, String> {
    let say = |e: std::io::Error| e.to_string();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(say)?;
    let request = format!(
        "POST / HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n{headers}\r\nauthorization: \
         AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=x\
         \r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).map_err(say)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(say)?;
    if answer.starts_with("HTTP/1.1 200") { Ok(answer) } else { Err(answer) }
}

/// The program. The first test of all processes installs it.
fn installed() -> Result<PathBuf, String> {
    let needs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/queues/requirements.txt");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("queues-python");
    let say = |e: std::io::Error| format!("{}: {e}", dir.display());
    std::fs::create_dir_all(&dir).map_err(say)?;
    let lock = std::fs::File::create(dir.join("install.lock")).map_err(say)?;
    lock.lock().map_err(say)?;
    let wanted = std::fs::read(&needs).map_err(say)?;
    if std::fs::read(dir.join("installed")).ok() != Some(wanted.clone()) {
        let run = |program: &Path, args: &[&str]| match Command::new(program).args(args).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(format!("{} {} failed", program.display(), args.join(" "))),
            Err(e) => Err(format!("{}: {e}; install Python 3 with venv", program.display())),
        };
        let venv = dir.join("venv");
        run(Path::new("python3"), &["-m", "venv", &venv.display().to_string()])?;
        let needs = needs.display().to_string();
        run(&venv.join("bin/python"), &["-m", "pip", "install", "--quiet", "-r", &needs])?;
        std::fs::write(dir.join("installed"), wanted).map_err(say)?;
    }
    Ok(dir.join("venv/bin/moto_server"))
}
