//! The host of an object, and what makes it another object.

use sha2::{Digest, Sha256};
use tidegate_core::hex::hex;
use url::Url;

use super::DownloadItem;
use crate::secret::is_secret_query;

/// Parameters of signed URLs beside those that hold a secret: of Azure, CloudFront and Google.
const SIGNED: [&str; 17] = [
    "se",
    "sp",
    "sr",
    "st",
    "sv",
    "ss",
    "srt",
    "spr",
    "sip",
    "ske",
    "skoid",
    "sks",
    "skt",
    "sktid",
    "skv",
    "expires",
    "key-pair-id",
];

/// The host and port of a URL, as lanes and `--allow-host` name it.
#[must_use]
pub fn host(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (host, _) => host.unwrap_or_default().to_owned(),
    }
}

/// What an object is made of: its URL without what signs it, and its request.
pub(super) fn identity(item: &DownloadItem) -> String {
    let signs = |name: &str| {
        let name = name.to_ascii_lowercase();
        is_secret_query(&name)
            || SIGNED.contains(&name.as_str())
            || name.starts_with("x-amz-")
            || name.starts_with("x-goog-")
    };
    let pairs: Vec<_> = item.url.query_pairs().filter(|(name, _)| !signs(name)).collect();
    let mut url = item.url.clone();
    url.set_query(None);
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    match &item.body {
        None => url.to_string(),
        Some(body) => format!("{url} {}", hex(&Sha256::digest(body.as_bytes()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_signature_is_not_a_new_object() {
        let of = |url: &str, body: Option<&str>| {
            let url = Url::parse(url).unwrap_or_else(|_| unreachable!());
            let body = body.map(str::to_owned);
            identity(&DownloadItem { key: "a".into(), url, body, size: None, checksum: None, kind: None })
        };
        let plain = of("https://x.test/a.tif?band=4", None);
        assert_eq!(plain, "https://x.test/a.tif?band=4");
        for signed in ["sig=abc&se=2026", "X-Amz-Signature=1&X-Amz-Expires=2", "Expires=1&Signature=2"] {
            assert_eq!(of(&format!("https://x.test/a.tif?band=4&{signed}"), None), plain, "{signed}");
        }
        assert_ne!(of("https://x.test/a.tif?band=5", None), plain);
        assert_ne!(of("https://x.test/p", Some("1")), of("https://x.test/p", Some("2")));
    }
}
