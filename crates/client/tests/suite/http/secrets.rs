//! Credentials: sent to their origin, to no other, and printed nowhere.

use crate::http::server::{Act, Names, Server, answer, ask, exchange, private, redirect};
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use tidegate_client::http::{Credential, CredentialLocation, Request};
use tidegate_client::secret::{Redactor, Secret};
use url::Url;

const CANARY: &str = "cAnArY+7/secret value";

fn request(url: Url) -> Request {
    let credential =
        |place| Credential { name: "env:CANARY".into(), place, secret: Secret::new(CANARY.into()) };
    let mut request = Request::get(url);
    request.credentials = vec![
        credential(CredentialLocation::Header(http::header::AUTHORIZATION, "Bearer ".into())),
        credential(CredentialLocation::Header("x-api-key".parse().unwrap(), String::new())),
        credential(CredentialLocation::Query("app_id".into())),
    ];
    request.headers.insert("cookie", format!("id={CANARY}").parse().unwrap());
    request.headers.insert("x-my-token", CANARY.parse().unwrap());
    request.headers.insert("x-plain", "kept".parse().unwrap());
    request
}

fn carries(head: &str) -> bool {
    head.contains("cAnArY")
}

#[tokio::test]
async fn credentials_stay_with_their_origin() {
    let other = Server::start(|_, _| answer("200 OK", "", "other")).await;
    let home = Arc::new(Mutex::new(String::new()));
    let (to, back) = (other.url("/there").to_string(), home.clone());
    let server = Server::start(move |_, head| match head.split(['?', ' ']).nth(1) {
        Some("/same") => redirect("302 Found", "/here"),
        Some("/other") => redirect("302 Found", &to),
        Some("/alias") => redirect("302 Found", &back.lock().unwrap()),
        _ => answer("200 OK", "", "here"),
    })
    .await;
    let port = server.address.port();
    let names = Names::of(&[("alias.test", &["127.0.0.1"])]);
    let exchange = exchange(private(), names);

    assert!(ask(&exchange, &request(server.url("/same"))).await.is_accepted());
    let heads = server.heads();
    assert_eq!(heads.len(), 2);
    for head in &heads {
        for part in
            ["authorization: Bearer cAnArY", "x-api-key: cAnArY", "app_id=cAnArY", "cookie: id=cAnArY"]
        {
            assert!(head.contains(part), "{part} in {head}");
        }
    }
    // Another port is another origin.
    assert!(ask(&exchange, &request(server.url("/other"))).await.is_accepted());
    assert!(!carries(&other.heads()[0]) && other.heads()[0].contains("x-plain: kept"));
    // Another name for the same server too, and a way back does not bring the credentials back.
    *home.lock().unwrap() = format!("http://alias.test:{port}/here");
    assert!(ask(&exchange, &request(server.url("/alias"))).await.is_accepted());
    assert!(!carries(server.heads().last().unwrap()));
}

#[tokio::test]
async fn once_left_behind_credentials_do_not_come_back() {
    let home = Arc::new(Mutex::new(String::new()));
    let back = home.clone();
    let other = Server::start(move |_, _| redirect("302 Found", &back.lock().unwrap())).await;
    let to = other.url("/").to_string();
    let server = Server::start(move |n, _| match n {
        0 => redirect("302 Found", &to),
        _ => answer("200 OK", "", "home"),
    })
    .await;
    *home.lock().unwrap() = server.url("/end").to_string();
    assert!(ask(&exchange(private(), Arc::default()), &request(server.url("/"))).await.is_accepted());
    assert!(!carries(&server.heads()[1]));
}

/// Everything that the driver can turn into text, after a request whose answer quotes the secret.
#[tokio::test]
async fn a_canary_is_in_no_text() {
    let server = Server::start(|n, head| match n {
        0 => answer("403 No", "", head),
        _ => Act::Reset(vec![]),
    })
    .await;
    let mut redactor = Redactor::new();
    redactor.add(&Secret::new(CANARY.into()));
    let exchange = exchange(private(), Arc::default());
    let request = request(server.url("/?q=1&key=cAnArY"));
    let mut text = String::new();
    for _ in 0..2 {
        let outcome = ask(&exchange, &request).await;
        let _ = write!(text, "{:?} {:?} {}", outcome.verdict, outcome.history(), outcome.word());
        match outcome.value.unwrap() {
            Ok(answer) => {
                let body = String::from_utf8_lossy(&answer.response.body).into_owned();
                assert!(carries(&body), "the server quotes the secret");
                let _ = write!(
                    text,
                    "{}{}",
                    redactor.text(&body.replace("key=cAnArY", "")),
                    redactor.url(&answer.response.url)
                );
            }
            Err(failure) => {
                let _ = write!(text, "{failure} {failure:?}");
            }
        }
    }
    let _ = write!(text, "{:?} {}", exchange.lanes.snapshots(), exchange.lanes.snapshots()[0].key);
    let _ = write!(text, "{:?} {}", request.credentials, redactor.url(&request.url));
    for (name, value) in &request.headers {
        let _ = writeln!(text, "{name}: {}", redactor.header(name, value));
    }
    assert!(!carries(&text), "{text}");
}
