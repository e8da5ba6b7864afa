//! The verb `chaos`, through the built binary.

#[path = "../../../../chaos/tests/chaos/client.rs"]
#[allow(dead_code, reason = "the suite of the library uses the rest")]
mod client;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use client::send;

/// Kills the server if the test fails before it ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn chaos(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("chaos").args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn the_first_line_is_the_address_and_the_last_the_statistics() {
    let mut server = Server(
        chaos(&[
            "--format",
            "json",
            "--stop-after",
            "3",
            "--throttle",
            "fixed:1/1h",
            "--headers",
            "retry-after",
        ])
        .spawn()
        .unwrap(),
    );
    let mut out = BufReader::new(server.0.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let address: serde_json::Value = serde_json::from_str(&line).unwrap();
    let addr = address["addr"].as_str().unwrap().parse().unwrap();
    assert_eq!(address["url"], format!("http://{addr}"));
    let ask = |q: &str| {
        send(
            addr,
            format!("GET /geocode?q={q} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes(),
        )
        .status
    };
    assert_eq!([ask("a"), ask("b"), ask("c")], [200, 429, 429]);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let stats: serde_json::Value = serde_json::from_str(&rest).unwrap();
    assert_eq!((&stats["requests"], &stats["wasted_calls"]), (&3.into(), &2.into()));
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
}

#[test]
fn text_tells_the_url_alone_and_quit_ends_it() {
    let mut server = Server(chaos(&["--preset", "nominatim", "--seed", "7"]).spawn().unwrap());
    let mut out = BufReader::new(server.0.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let addr = line.trim().strip_prefix("http://").unwrap().parse().unwrap();
    let ask = |target: &str| {
        send(
            addr,
            format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes(),
        )
    };
    let config = ask("/__config").json();
    assert_eq!(
        (&config["seed"], &config["throttle"]),
        (&7.into(), &"TokenBucket { rate: 1.0, burst: 1.0 }".into())
    );
    assert_eq!(ask("/__quit").status, 200);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
}

#[test]
fn wrong_options_are_usage_errors_that_say_what_is_expected() {
    for (args, word) in [
        (&["--addr", "0.0.0.0:0"][..], "loopback"),
        (&["--throttle", "drip:1/s"], "bucket:500/s,burst=50"),
        (&["--headers", "smoke"], "retry-after"),
        (&["--status", "500"], "500=1%"),
        (&["--cut", "soon"], "every:7"),
        (&["--outage", "10s..5s"], "ends before it starts"),
        (&["--cut", "60%", "--reset", "60%"], "120.0 %"),
        (&["--preset", "nobody"], "nominatim"),
    ] {
        let ran = chaos(args).output().unwrap();
        let stderr = String::from_utf8(ran.stderr).unwrap();
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(2), 0), "{args:?}: {stderr}");
        assert!(stderr.contains(word), "{args:?}: {stderr}");
    }
}
