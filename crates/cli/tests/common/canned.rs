//! A server that says what the test tells it to, and remembers what it was sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request.
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

/// Answers every request with what a function makes of it.
pub(crate) struct Canned {
    addr: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    connections: Arc<Mutex<u64>>,
}

impl Canned {
    /// Starts at a free port. `answer` gets the head of the request and gives status line rest,
    /// headers and body, such as `200 OK\r\nX: y\r\n\r\nbody`; the length is added.
    pub(crate) fn start(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Canned {
        Canned::bytes(move |head| answer(head).into_bytes())
    }

    /// The same with a body that need not be text.
    pub(crate) fn bytes(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Canned {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let canned = Canned {
            addr: listener.local_addr().unwrap(),
            asked: Arc::default(),
            connections: Arc::default(),
        };
        let (asked, connections) = (Arc::clone(&canned.asked), Arc::clone(&canned.connections));
        let answer = Arc::new(answer);
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                *connections.lock().unwrap() += 1;
                let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &asked, &*answer));
            }
        });
        canned
    }

    /// Answers with a match, whatever is asked.
    pub(crate) fn matching() -> Canned {
        Canned::start(|_| json("200 OK", MATCH))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn port(&self) -> u16 {
        self.addr.port()
    }

    /// All requests, also those that have no answer yet.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Their heads.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.head).collect()
    }

    /// Connections made, also those without a request.
    pub(crate) fn connections(&self) -> u64 {
        *self.connections.lock().unwrap()
    }
}

/// A body in which the generic profile finds a place.
pub(crate) const MATCH: &str = r#"{"results":[{"lat":48.5,"lon":16.25,"label":"here","score":0.5}]}"#;

/// An answer in JSON.
pub(crate) fn json(status: &str, body: &str) -> String {
    format!("{status}\r\nContent-Type: application/json\r\n\r\n{body}")
}

fn serve(stream: TcpStream, asked: &Mutex<Vec<Asked>>, answer: &dyn Fn(&str) -> Vec<u8>) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if !stream.read_line(&mut head).is_ok_and(|n| n > 0) {
            return;
        }
    }
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    let length = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let mut body = vec![0; length.map_or(0, |(_, n)| n.parse().unwrap())];
    if stream.read_exact(&mut body).is_err() {
        return;
    }
    asked.lock().unwrap().push(Asked { head: head.clone(), body });
    let said = answer(&head);
    let end = said.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(said.len());
    let (head, body) = (&said[..end], said.get(end + 4..).unwrap_or_default());
    let length = format!("\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let whole = [b"HTTP/1.1 ", head, length.as_bytes(), body].concat();
    // A client that has gone has its reasons.
    let _ = stream.get_mut().write_all(&whole);
}

/// An address where nobody listens, and nobody can while the socket lives.
pub(crate) fn closed() -> (tokio::net::TcpSocket, SocketAddr) {
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addr = held.local_addr().unwrap();
    (held, addr)
}

/// Lets so many answers out, and the others when it is opened.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<(u64, bool)>,
    changed: std::sync::Condvar,
}

impl Gate {
    /// Counts one in and waits until it may go.
    pub(crate) fn pass(&self, free: u64) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        let number = state.0;
        self.changed.notify_all();
        let _open = self.changed.wait_while(state, |(_, open)| number > free && !*open).unwrap();
    }

    /// Waits until so many have come.
    pub(crate) fn wait(&self, came: u64) {
        let state = self.state.lock().unwrap();
        let _seen = self.changed.wait_while(state, |(n, _)| *n < came).unwrap();
    }

    /// Lets everybody go.
    pub(crate) fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}
