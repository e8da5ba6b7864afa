//! Services of a handful of lines: a collection whose identifiers are no numbers and which can
//! forget its links, and a bucket that gives back what was put.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

pub(crate) struct Stranger {
    pub(crate) url: String,
    forgets: Arc<AtomicBool>,
}

impl Stranger {
    /// From now on a link that was given before is unknown.
    pub(crate) fn forget(&self) {
        self.forgets.store(true, Ordering::SeqCst);
    }
}

/// An OGC API collection of so many features in pages of this size.
pub(crate) fn collection(features: usize, page: usize) -> Stranger {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let forgets = Arc::new(AtomicBool::new(false));
    let (own, forgetful) = (url.clone(), forgets.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream, &own, (features, page), &forgetful);
        }
    });
    Stranger { url, forgets }
}

fn answer(mut stream: TcpStream, url: &str, (features, page): (usize, usize), forgets: &AtomicBool) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
    // A link names the age of the server that gave it.
    let age = usize::from(forgets.load(Ordering::SeqCst));
    let asked = target.split(['?', '&']).find_map(|part| part.strip_prefix("token="));
    let start: usize = match asked.and_then(|token| token.split_once('-')) {
        Some((of, _)) if of != age.to_string() => return send(&mut stream, "404 Not Found", "{}"),
        Some((_, start)) => start.parse().unwrap(),
        None => 0,
    };
    if !target.contains("/items") {
        return send(&mut stream, "200 OK", &json!({"id": "things", "links": []}).to_string());
    }
    let end = (start + page).min(features);
    let all: Vec<_> = (start..end)
        .map(|n| {
            // No digit at the end, so that it is no name with a number.
            let id: String = (0..4).map(|at| char::from(b'a' + (n / 5usize.pow(at) % 5) as u8)).collect();
            json!({"type": "Feature", "id": id, "properties": {"n": n},
                "geometry": {"type": "Point", "coordinates": [16.123_456, 48.123_456]}})
        })
        .collect();
    let mut links = Vec::new();
    if end < features {
        links.push(
            json!({"rel": "next", "href": format!("{url}/collections/things/items?token={age}-{end}")}),
        );
    }
    let body = json!({"type": "FeatureCollection", "features": all, "links": links,
        "numberMatched": features, "numberReturned": end - start});
    send(&mut stream, "200 OK", &body.to_string());
}

fn send(stream: &mut TcpStream, status: &str, body: &str) {
    // A client that has gone does not mind.
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/geo+json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
}

/// A bucket; its address.
pub(crate) fn bucket() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut objects = HashMap::new();
        for stream in listener.incoming().flatten() {
            keep(stream, &mut objects);
        }
    });
    url
}

fn keep(mut stream: TcpStream, objects: &mut HashMap<String, Vec<u8>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) <= 2 {
            break;
        }
        if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = n.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let mut words = head.split([' ', '?']);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
    let (status, body) = match method {
        "PUT" => {
            objects.insert(path, body);
            ("200 OK", Vec::new())
        }
        _ => match objects.get(&path) {
            Some(found) => ("200 OK", found.clone()),
            None => ("404 Not Found", Vec::new()),
        },
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nETag: \"1\"\r\n\
         Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // A client that has gone does not mind.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
}
