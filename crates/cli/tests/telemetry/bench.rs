//! A directory to run in, and a server that remembers what it was sent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// A request: its head, in lower case, and its body.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    /// Whether the body holds this text.
    pub(crate) fn holds(&self, text: &str) -> bool {
        self.body.windows(text.len()).any(|part| part == text.as_bytes())
    }
}

/// A server that answers by a function of how often it was asked and of the head.
pub(crate) struct Server {
    addr: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(usize, &str) -> String + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server { addr: listener.local_addr().unwrap(), asked: Arc::default() };
        let (asked, answer) = (Arc::clone(&server.asked), Arc::new(answer));
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &asked, &*answer));
            }
        });
        server
    }

    /// Takes whatever comes.
    pub(crate) fn taking() -> Server {
        Server::start(|_, _| reply("200 OK", ""))
    }

    /// Geocodes: every address is in Vienna.
    pub(crate) fn geocoder(status: impl Fn(usize) -> &'static str + Send + Sync + 'static) -> Server {
        Server::start(move |n, _| match status(n) {
            "200 OK" => reply("200 OK", r#"{"results":[{"lon":16.3725,"lat":48.2083,"label":"Wien"}]}"#),
            other => reply(other, "{}"),
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

pub(crate) fn reply(status: &str, body: &str) -> String {
    format!("{status}\r\nContent-Type: application/json\r\n\r\n{body}")
}

fn serve(mut stream: TcpStream, asked: &Mutex<Vec<Asked>>, answer: &dyn Fn(usize, &str) -> String) {
    let mut bytes = Vec::new();
    loop {
        let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
            let mut more = [0; 16 * 1024];
            match stream.read(&mut more) {
                Ok(0) | Err(_) => return,
                Ok(n) => bytes.extend_from_slice(&more[..n]),
            }
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .map_or(0, |n| n.trim().parse().unwrap());
        while bytes.len() < end + 4 + length {
            let mut more = [0; 16 * 1024];
            match stream.read(&mut more) {
                Ok(0) | Err(_) => return,
                Ok(n) => bytes.extend_from_slice(&more[..n]),
            }
        }
        let body = bytes[end + 4..end + 4 + length].to_vec();
        bytes.drain(..end + 4 + length);
        let n = {
            let mut asked = asked.lock().unwrap();
            asked.push(Asked { head: head.clone(), body });
            asked.len() - 1
        };
        let said = answer(n, &head);
        let (top, body) = said.split_once("\r\n\r\n").unwrap();
        let said = format!("HTTP/1.1 {top}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(said.as_bytes()).is_err() {
            return;
        }
    }
}

pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stderr: String,
}

/// A directory to run in.
pub(crate) struct Bench(tempfile::TempDir);

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench(tempfile::tempdir().unwrap())
    }

    /// With so many addresses in `in.csv`.
    pub(crate) fn addresses(n: usize) -> Bench {
        let bench = Bench::new();
        let rows: String = (0..n).map(|i| format!("{i},{i} Harbour Road\n")).collect();
        bench.write("in.csv", &format!("id,address\n{rows}"));
        bench
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// A manifest `m.yaml` with these parts, indented by two.
    pub(crate) fn manifest(&self, parts: &str) {
        let parts: String = parts.lines().map(|line| format!("  {line}\n")).collect();
        self.write(
            "m.yaml",
            &format!(
                "pipeline:\n  id: parcels\n  retry_policy: {{ max_attempts: 4, base_delay: 5ms, max_delay: 20ms, retryable_status_codes: [429, 503] }}\n  tolerance: {{ max_null_rate: 1, halt_on_geometry_invalid: false }}\n{parts}"
            ),
        );
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(args).current_dir(self.0.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).env("NO_COLOR", "1");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str], env: &[(&str, &str)]) -> Ran {
        let output = self.command(args).envs(env.iter().copied()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        Ran { code: output.status.code().unwrap(), stderr }
    }
}
