//! Servers that answer like PostgreSQL and ask for the password in clear text or as an MD5 hash: a
//! host that is not this machine gets neither without proof of who it is, whatever part asks.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::running::Ran;
use crate::workdir::Workdir;

const PASSWORD: &str = "swordfish-in-the-clear";

/// A server that has no TLS and asks for the password.
struct Thief {
    port: u16,
    heard: Arc<Mutex<Vec<u8>>>,
}

/// How it asks.
const CLEAR: &[u8] = &[b'R', 0, 0, 0, 8, 0, 0, 0, 3];
const MD5: &[u8] = &[b'R', 0, 0, 0, 12, 0, 0, 0, 5, b's', b'a', b'l', b't'];
/// Lets everybody in, and says no more.
const TRUST: &[u8] = &[b'R', 0, 0, 0, 8, 0, 0, 0, 0];

impl Thief {
    fn start(request: &'static [u8]) -> Thief {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let thief = Thief { port: listener.local_addr().unwrap().port(), heard: Arc::default() };
        let heard = Arc::clone(&thief.heard);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let heard = Arc::clone(&heard);
                std::thread::spawn(move || {
                    let mut piece = [0; 4096];
                    while let Ok(n @ 1..) = stream.read(&mut piece) {
                        let said = &piece[..n];
                        heard.lock().unwrap().extend(said);
                        let answer = match said {
                            // The question whether there is TLS.
                            [0, 0, 0, 8, 4, 210, 22, 47] => b"N",
                            [b'p', ..] => return,
                            _ => request,
                        };
                        if stream.write_all(answer).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        thief
    }

    /// An address of this machine that does not count as such.
    fn elsewhere(&self, query: &str) -> String {
        self.url("0.0.0.0", query)
    }

    fn url(&self, host: &str, query: &str) -> String {
        format!("postgres://loader:{PASSWORD}@{host}:{}/gis?reply_timeout=20&{query}", self.port)
    }

    /// Whether it was given the password, or its hash.
    fn has_password(&self) -> bool {
        let heard = self.heard.lock().unwrap();
        let holds = |text: &[u8]| heard.windows(text.len()).any(|part| part == text);
        // The hash is in a message of the password, whose tag and length are known.
        holds(PASSWORD.as_bytes()) || holds(&[b'p', 0, 0, 0, 40]) || holds(b"md5")
    }

    fn was_called(&self) -> bool {
        !self.heard.lock().unwrap().is_empty()
    }
}

const POLICY: &str = "
  retry_policy: { max_attempts: 1, base_delay: 10ms, retryable_status_codes: [503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
";

/// A directory whose file `url` has this URL of a database, and a manifest for each part that uses one.
fn desk(url: &str) -> Workdir {
    let dir = Workdir::new();
    dir.write("url", url);
    dir.write("in.csv", "id,name\n1,a\n");
    let (file, out) = ("source: { file: in.csv, crs: EPSG:4326 }", "sink: { file: out.gpkg, key: [id] }");
    for (name, parts) in [
        ("sink", format!("{file}\n  sink: {{ postgis: {{ url: file:url, table: out }}, key: [id] }}")),
        ("source", format!("source: {{ postgis: {{ url: file:url, table: t, key: id }} }}\n  {out}")),
        ("letters", format!("{file}\n  {out}\n  dead_letters: {{ store: file:url }}")),
        ("queue", format!("source: {{ queue: file:url, tasks: {{ fields: {{ id: int }} }} }}\n  {out}")),
        ("lanes", format!("{file}\n  {out}")),
    ] {
        dir.write(&format!("{name}.yaml"), &format!("pipeline:\n  id: {name}\n  {parts}{POLICY}"));
    }
    dir
}

fn ran(dir: &Workdir, args: &[&str]) -> Ran {
    dir.command(args).output().unwrap().into()
}

/// Everything that connects to a database.
fn callers() -> Vec<Vec<&'static str>> {
    vec![
        vec!["run", "sink.yaml"],
        vec!["plan", "sink.yaml"],
        vec!["run", "source.yaml"],
        vec!["run", "letters.yaml"],
        vec!["doctor", "sink.yaml"],
        vec!["doctor", "letters.yaml"],
        vec!["worker", "queue.yaml", "--once"],
        vec!["queue", "lag", "queue.yaml"],
        vec!["lanes", "ls", "--shared", "file:url"],
        vec!["audit", "anchor", "--to", "file:url"],
    ]
}

/// No caller gives the password away, and each says these words.
fn keeps(thief: &Thief, url: &str, says: &str) {
    let dir = desk(url);
    // So that there is an audit to anchor.
    assert_eq!(ran(&dir, &["run", "lanes.yaml"]).code, 0);
    let mut faults = Vec::new();
    for args in callers() {
        let made = ran(&dir, &args);
        let told = format!("{}{}", made.stdout, made.stderr);
        assert!(!thief.has_password(), "{args:?} {url}: {told}");
        let was_called = thief.was_called();
        thief.heard.lock().unwrap().clear();
        // A plan is made without the sink, and says so.
        let is_refused = made.code != 0 || args[0] == "plan";
        let hides = !told.contains(PASSWORD) && !told.contains("is the database running");
        if !(was_called && is_refused && hides && told.contains(says)) {
            faults.push(format!("{args:?} {url}: {told}"));
        }
    }
    assert!(faults.is_empty(), "not {says:?} in {}", faults.join("\n"));
}

#[test]
fn another_machine_has_to_prove_who_it_is() {
    let thief = Thief::start(CLEAR);
    keeps(
        &thief,
        &thief.elsewhere(""),
        "set sslmode=disable if you trust everybody between here and there (sslmode=verify-full, the default for other machines)",
    );
}

#[test]
fn without_proof_it_gets_no_password_and_no_hash() {
    for (request, name) in [(CLEAR, "password"), (MD5, "md5")] {
        let thief = Thief::start(request);
        let says = format!("set require_auth={name}");
        keeps(&thief, &thief.elsewhere("sslmode=disable"), &says);
        // As libpq would go on without TLS.
        let dir = desk(&thief.elsewhere("sslmode=prefer"));
        let made = ran(&dir, &["run", "sink.yaml"]);
        assert!(!thief.has_password() && made.stderr.contains(&says), "{}", made.stderr);
        assert_eq!(made.code, 2, "{}", made.stderr);
    }
}

#[test]
fn what_the_url_requires_holds_on_this_machine_too() {
    for request in [CLEAR, MD5, TRUST] {
        for query in ["require_auth=scram-sha-256", "require_auth=!password,!md5,!none&sslmode=prefer"] {
            let thief = Thief::start(request);
            let dir = desk(&thief.url("127.0.0.1", query));
            let made = ran(&dir, &["run", "sink.yaml"]);
            assert_eq!(made.code, 2, "{}", made.stderr);
            assert!(!thief.has_password() && thief.was_called(), "{}", made.stderr);
            let says = "which require_auth=";
            assert!(made.stderr.contains(says) && made.stderr.contains("not sent"), "{}", made.stderr);
        }
    }
}

#[test]
fn an_explicit_word_gives_the_password() {
    for (request, word) in [(CLEAR, "password"), (MD5, "md5")] {
        let thief = Thief::start(request);
        let dir = desk(&thief.elsewhere(&format!("sslmode=disable&require_auth={word}")));
        ran(&dir, &["plan", "sink.yaml"]);
        assert!(thief.has_password(), "{word}");
        // On this machine, as before.
        let thief = Thief::start(request);
        let dir = desk(&thief.url("localhost", ""));
        ran(&dir, &["plan", "sink.yaml"]);
        assert!(thief.has_password(), "{word}");
    }
}

#[test]
fn words_without_a_meaning_are_refused_and_the_url_is_not_quoted() {
    let thief = Thief::start(CLEAR);
    for (query, says) in [
        ("require_auth=scram", "invalid require_auth"),
        ("require_auth=password,!md5", "invalid require_auth"),
        ("sslmode=verify", "invalid sslmode"),
        ("sslmode=prefer&sslnegotiation=direct", "sslnegotiation=direct needs sslmode=require"),
    ] {
        let dir = desk(&thief.elsewhere(query));
        let made = ran(&dir, &["run", "sink.yaml"]);
        assert_eq!(made.code, 2, "{query}: {}", made.stderr);
        assert!(made.stderr.contains(says) && !made.stderr.contains(PASSWORD), "{query}: {}", made.stderr);
    }
    // A setting that is lost would be a weaker one.
    let dir =
        desk(&format!("host=0.0.0.0 port={} user=loader password={PASSWORD} sslmode=require", thief.port));
    let made = ran(&dir, &["run", "sink.yaml"]);
    assert!(made.code == 2 && made.stderr.contains("TLS is set in a URL"), "{}", made.stderr);
    assert!(!thief.was_called());
}
