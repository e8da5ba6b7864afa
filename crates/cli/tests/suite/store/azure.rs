//! Identities of Azure: a service principal, a token file, the instance; and their renewal.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};

use crate::common::canned::{Canned, json};
use crate::store::identity::header;
use crate::store::{command, text};

/// What the services know.
#[derive(Default)]
struct Tenant {
    /// Tokens issued.
    issued: u32,
    /// Blobs accepted.
    accepted: u32,
    blobs: BTreeMap<String, usize>,
}

impl Tenant {
    fn token(&mut self, expires: &str) -> String {
        self.issued += 1;
        json("200 OK", &format!(r#"{{"access_token":"CANARY-{}","expires_in":{expires}}}"#, self.issued))
    }

    /// A container that knows only the newest token, and the first one for three blobs.
    fn blob(&mut self, head: &str) -> String {
        let shown = header(head, "authorization").unwrap_or_default();
        if shown != format!("Bearer CANARY-{}", self.issued) || (self.issued == 1 && self.accepted >= 3) {
            return "401 Unauthorized\r\nx-ms-error-code: InvalidAuthenticationInfo\r\n\r\n".to_owned();
        }
        let name = head.split(' ').nth(1).unwrap().to_owned();
        let dated = "ETag: \"0x1\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n";
        if head.starts_with("PUT") {
            self.accepted += 1;
            self.blobs.insert(name, header(head, "content-length").unwrap().parse().unwrap());
            return format!("201 Created\r\n{dated}");
        }
        // The answer to HEAD ends with the connection, so its body does no harm.
        format!("200 OK\r\n{dated}{}", ".".repeat(self.blobs[&name]))
    }
}

#[test]
fn an_identity_is_renewed_in_the_middle_of_a_run() {
    for (source, secret) in [("environment", true), ("web-identity", false), ("instance", false)] {
        let here = tempfile::tempdir().unwrap();
        let tenant = Arc::new(Mutex::new(Tenant::default()));
        let shared = Arc::clone(&tenant);
        let server = Canned::start(move |head| {
            let mut tenant = shared.lock().unwrap();
            let path = head.split([' ', '?']).nth(1).unwrap();
            match path {
                "/tenant/oauth2/v2.0/token" => tenant.token("3600"),
                // Instances say it as text.
                "/metadata/identity/oauth2/token" if header(head, "metadata") == Some("true") => {
                    tenant.token("\"3600\"")
                }
                path if path.starts_with("/container/") => tenant.blob(head),
                _ => "400 Bad Request\r\n\r\n".to_owned(),
            }
        });
        let url = server.url();
        let names: Vec<String> = (0..8).map(|n| format!("{n}.bin")).collect();
        for name in &names {
            fs::write(here.path().join(name), name).unwrap();
        }
        fs::write(here.path().join("federated"), "federated-token").unwrap();
        let mut put =
            command(here.path(), &["put", "az://container", "--endpoint", &url, "--account", "geodata"]);
        put.args(["--base-delay", "1ms", "--max-delay", "2ms", "--credentials", source]).args(&names);
        put.env("AZURE_AUTHORITY_HOST", &url)
            .env("AZURE_TENANT_ID", "tenant")
            .env("AZURE_CLIENT_ID", "client");
        put.env("AZURE_POD_IDENTITY_AUTHORITY_HOST", &url);
        if secret {
            put.env("AZURE_CLIENT_SECRET", "client-secret");
        } else {
            put.env("AZURE_FEDERATED_TOKEN_FILE", here.path().join("federated"));
        }
        let done = put.output().unwrap();
        assert_eq!(
            (done.status.code(), text(&done.stderr)),
            (Some(0), "put 8 objects, 40 bytes, to az://container; the store confirmed the sizes\n"),
            "{source}"
        );
        let tenant = tenant.lock().unwrap();
        assert_eq!((tenant.issued, tenant.blobs.len()), (2, 8), "{source}");
        let holds = |what: &str| server.asked().iter().any(|asked| asked.holds(what));
        assert_eq!(holds("client_secret=client-secret"), source == "environment");
        assert_eq!(holds("client_assertion=federated-token"), source == "web-identity");
    }
}

#[test]
fn an_account_is_needed_and_options_of_other_clouds_are_refused() {
    let here = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["ls", "az://container"][..], "AZURE_STORAGE_ACCOUNT"),
        (&["ls", "az://container", "--account", "a", "--region", "eu-west-1"], "is for s3://, not for az://"),
        (&["ls", "s3://bucket", "--account", "a"], "is for az://, not for s3://"),
        (
            &["ls", "az://container", "--account", "a", "--credentials", "container"],
            "has no credentials of the kind",
        ),
    ] {
        let said = command(here.path(), arguments).output().unwrap();
        assert_eq!(said.status.code(), Some(2), "{arguments:?}");
        assert!(text(&said.stderr).contains(words), "{arguments:?}: {}", text(&said.stderr));
    }
}
