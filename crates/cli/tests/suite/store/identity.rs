//! Credentials of roles: a token file, a container, an instance; and their renewal.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex};

use crate::common::canned::{Canned, json};
use crate::store::{command, text};

const POINT: &str = r#"{"type":"FeatureCollection","features":[{"type":"Feature","properties":{"id":1},"geometry":{"type":"Point","coordinates":[8,47]}}]}"#;

/// What the services of one cloud know.
#[derive(Default)]
struct Realm {
    /// Credentials issued.
    issued: u32,
    /// Puts accepted with the current credential.
    accepted: u32,
    /// The credential ends after so many puts.
    lasts: Option<u32>,
    /// The first credential is issued with a date that has passed.
    stale: bool,
    /// What the service of credentials answers instead.
    refusal: Option<&'static str>,
    objects: BTreeMap<String, usize>,
}

impl Realm {
    fn issue(&mut self) -> (String, &'static str) {
        self.issued += 1;
        self.accepted = 0;
        let date =
            if self.stale && self.issued == 1 { "2020-01-01T00:00:00Z" } else { "2099-01-01T00:00:00Z" };
        (format!("session-{}", self.issued), date)
    }

    fn role(&mut self) -> String {
        let (token, date) = self.issue();
        json(
            "200 OK",
            &format!(
                r#"{{"AccessKeyId":"AKIA{token}","SecretAccessKey":"CANARY-secret","Token":"{token}","Expiration":"{date}"}}"#
            ),
        )
    }

    fn assumed(&mut self) -> String {
        let (token, date) = self.issue();
        format!(
            "200 OK\r\nContent-Type: text/xml\r\n\r\n<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult>\
             <Credentials><AccessKeyId>AKIA{token}</AccessKeyId><SecretAccessKey>CANARY-secret</SecretAccessKey>\
             <SessionToken>{token}</SessionToken><Expiration>{date}</Expiration></Credentials>\
             </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        )
    }

    /// A bucket that knows only the newest credential.
    fn object(&mut self, head: &str) -> String {
        let name = head.split(' ').nth(1).unwrap().to_owned();
        let shown = header(head, "x-amz-security-token").unwrap_or_default();
        if self.lasts.is_some_and(|lasts| self.issued == 1 && self.accepted >= lasts)
            || self.issued == 0
            || shown != self.current()
        {
            return "400 Bad Request\r\n\r\n<Error><Code>ExpiredToken</Code></Error>".to_owned();
        }
        assert!(header(head, "authorization").unwrap().contains(&format!("Credential=AKIA{shown}/")));
        let dated = "200 OK\r\nETag: \"1\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n";
        if head.starts_with("PUT") {
            self.accepted += 1;
            let length = header(head, "content-length").unwrap().parse().unwrap();
            self.objects.insert(name, length);
            return dated.to_owned();
        }
        if name == "/bucket/in.geojson" {
            return dated.to_owned() + POINT;
        }
        // The answer to HEAD ends with the connection, so its body does no harm.
        dated.to_owned() + &".".repeat(self.objects[&name])
    }

    fn current(&self) -> String {
        if self.issued == 0 { String::new() } else { format!("session-{}", self.issued) }
    }
}

pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    headers.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// The bucket and all services of credentials at one address.
fn cloud(realm: Realm) -> (Canned, Arc<Mutex<Realm>>) {
    let realm = Arc::new(Mutex::new(realm));
    let shared = Arc::clone(&realm);
    let server = Canned::start(move |head| {
        let mut realm = shared.lock().unwrap();
        let path = head.split(' ').nth(1).unwrap();
        if path.starts_with("/bucket/") {
            return realm.object(head);
        }
        if let Some(refusal) = realm.refusal {
            return refusal.to_owned();
        }
        let session = header(head, "x-aws-ec2-metadata-token") == Some("imds-session");
        match path {
            "/latest/api/token" if header(head, "x-aws-ec2-metadata-token-ttl-seconds").is_some() => {
                "200 OK\r\n\r\nimds-session".to_owned()
            }
            "/latest/meta-data/iam/security-credentials/" if session => "200 OK\r\n\r\nreader".to_owned(),
            "/latest/meta-data/iam/security-credentials/reader" if session => realm.role(),
            "/container" if header(head, "authorization") == Some("container-token") => realm.role(),
            "/sts" => realm.assumed(),
            _ => "401 Unauthorized\r\n\r\n".to_owned(),
        }
    });
    (server, realm)
}

fn put(here: &Path, server: &Canned, files: usize, source: &str) -> Output {
    let names: Vec<String> = (0..files).map(|n| format!("{n:02}.bin")).collect();
    for name in &names {
        fs::write(here.join(name), name).unwrap();
    }
    fs::write(here.join("web-token"), "web-token-1\n").unwrap();
    fs::write(here.join("container-token"), "container-token\n").unwrap();
    let url = server.url();
    let mut command = command(here, &["put", "s3://bucket", "--endpoint", &url]);
    command.args(["--base-delay", "1ms", "--max-delay", "2ms", "--credentials", source]);
    command
        .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url)
        .env("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{url}/container"))
        .env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", here.join("container-token"))
        .env("AWS_ENDPOINT_URL_STS", format!("{url}/sts"))
        .env("AWS_ROLE_ARN", "arn:aws:iam::1:role/reader");
    if source == "web-identity" {
        command.env("AWS_WEB_IDENTITY_TOKEN_FILE", here.join("web-token"));
    }
    command.args(&names).output().unwrap()
}

#[test]
fn a_role_is_renewed_in_the_middle_of_a_run() {
    for source in ["instance", "container", "web-identity"] {
        let here = tempfile::tempdir().unwrap();
        let (server, realm) = cloud(Realm { lasts: Some(5), ..Realm::default() });
        let done = put(here.path(), &server, 12, source);
        assert_eq!(
            (done.status.code(), text(&done.stderr)),
            (Some(0), "put 12 objects, 72 bytes, to s3://bucket; the store confirmed the sizes\n"),
            "{source}"
        );
        let realm = realm.lock().unwrap();
        assert_eq!((realm.issued, realm.objects.len()), (2, 12), "{source}");
        if source == "web-identity" {
            assert!(server.asked().iter().any(|asked| asked.holds("WebIdentityToken=web-token-1")));
        }
    }
}

#[test]
fn a_credential_that_has_expired_is_renewed_before_it_is_shown_once_more() {
    let here = tempfile::tempdir().unwrap();
    let (server, realm) = cloud(Realm { stale: true, ..Realm::default() });
    let done = put(here.path(), &server, 1, "container");
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    // One for the put, another for the question that follows it.
    assert_eq!(realm.lock().unwrap().issued, 2);
    let refused = server.seen().iter().filter(|head| head.contains("session-1")).count();
    assert_eq!(refused, 1);
}

#[test]
fn metadata_services_are_asked_only_if_they_are_named() {
    let here = tempfile::tempdir().unwrap();
    let (server, realm) = cloud(Realm::default());
    let done = put(here.path(), &server, 1, "environment");
    assert_eq!(done.status.code(), Some(1), "unsigned, and refused: {}", text(&done.stderr));
    assert_eq!(realm.lock().unwrap().issued, 0);
    assert!(server.seen().iter().all(|head| head.contains("/bucket/")));
}

#[test]
fn a_manifest_names_them_too() {
    let here = tempfile::tempdir().unwrap();
    let (server, realm) = cloud(Realm { stale: true, ..Realm::default() });
    let url = server.url();
    let store = format!("{{ endpoint: \"{url}\", credentials: instance }}");
    let text = format!(
        "pipeline:\n  id: role\n  source: {{ file: \"s3://bucket/in.geojson\", store: {store} }}\n  \
         sink: {{ file: \"s3://bucket/out.geojson\", store: {store} }}\n  \
         retry_policy: {{ max_attempts: 3, base_delay_seconds: 0.1 }}\n  \
         tolerance: {{ max_null_rate: 1, halt_on_geometry_invalid: true }}\n"
    );
    fs::write(here.path().join("role.yaml"), text).unwrap();
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["run", "role.yaml"])
        .current_dir(here.path())
        .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url)
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", super::text(&ran.stderr));
    let realm = realm.lock().unwrap();
    assert_eq!(realm.objects.keys().collect::<Vec<_>>(), ["/bucket/out.geojson"]);
    assert_eq!(realm.issued, 2, "source and sink");
}

#[test]
fn what_the_service_of_credentials_says_is_reported() {
    for (refusal, code, words) in [
        (
            "403 Forbidden\r\n\r\n<Error><Code>AccessDenied</Code></Error>",
            1,
            "00.bin: UNAUTHORIZED (credentials of the container at 127.0.0.1: 403 AccessDenied)\n",
        ),
        (
            "500 Oops\r\n\r\n",
            75,
            "00.bin: SERVICE_UNAVAILABLE (credentials of the container at 127.0.0.1: 500) after 5 attempts\n",
        ),
        (
            "200 OK\r\n\r\n{\"Secret\":\"CANARY\"}",
            75,
            "00.bin: UNEXPECTED_BODY (credentials of the container at 127.0.0.1: the answer is not a credential) after 5 attempts\n",
        ),
    ] {
        let here = tempfile::tempdir().unwrap();
        let (server, _) = cloud(Realm { refusal: Some(refusal), ..Realm::default() });
        let done = put(here.path(), &server, 1, "container");
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{said}");
        assert_eq!(said, format!("tidegate store: {words}put 0 of 1 object, 0 bytes, to s3://bucket\n"));
    }
    let here = tempfile::tempdir().unwrap();
    let missing =
        command(here.path(), &["ls", "s3://bucket", "--credentials", "web-identity"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("AWS_WEB_IDENTITY_TOKEN_FILE"), "{}", text(&missing.stderr));
}

#[test]
fn no_credential_is_shown() {
    let here = tempfile::tempdir().unwrap();
    let (server, _) = cloud(Realm { lasts: Some(0), ..Realm::default() });
    let done = put(here.path(), &server, 1, "instance");
    assert_eq!(done.status.code(), Some(1), "a credential that is refused at once is not renewed");
    let said = text(&done.stderr);
    assert!(said.contains("00.bin: UNAUTHORIZED (400 ExpiredToken)"), "{said}");
    assert!(!said.contains("CANARY") && !said.contains("session-1"), "{said}");
}
