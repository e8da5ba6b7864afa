//! The parts of the URL of a queue: its name, its parameters, its credentials.

use url::Url;

use crate::error::QueueError;

/// The name of the queue: the last part of the path.
pub(crate) fn queue_name(url: &Url) -> Result<String, QueueError> {
    let name = decoded(url.path().rsplit('/').next().unwrap_or_default());
    if name.is_empty() {
        let example = format!("{}://{}/geotasks", url.scheme(), url.host_str().unwrap_or("host"));
        return Err(QueueError::Refused(format!("the URL does not name the queue; expected {example}")));
    }
    Ok(name)
}

/// The value of a parameter.
pub(crate) fn parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// Refuses parameters that are not known: a spelling mistake must not be ignored.
pub(crate) fn only(url: &Url, known: &[&str]) -> Result<(), QueueError> {
    match url.query_pairs().find(|(key, _)| !known.contains(&key.as_ref())) {
        Some((key, _)) => Err(QueueError::Refused(format!(
            "unknown parameter {key} in the URL of the queue; expected {}",
            known.join(", ")
        ))),
        None => Ok(()),
    }
}

/// The host without the brackets of IPv6.
pub(crate) fn host(url: &Url) -> String {
    match url.host() {
        Some(url::Host::Domain(name)) => name.to_owned(),
        Some(url::Host::Ipv4(address)) => address.to_string(),
        Some(url::Host::Ipv6(address)) => address.to_string(),
        None => "localhost".to_owned(),
    }
}

/// The user and the password of the URL, if there are any.
pub(crate) fn credentials(url: &Url) -> (Option<String>, Option<String>) {
    let user = Some(url.username()).filter(|user| !user.is_empty()).map(decoded);
    (user, url.password().map(decoded))
}

/// Decodes percent signs.
fn decoded(text: &str) -> String {
    let text = text.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    let decoded = url::form_urlencoded::parse(text.as_bytes()).next();
    decoded.map(|(text, _)| text.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_decoded() {
        let url = Url::parse("redis://me:p%40s+s%26=@[::1]:6390/0/geo%20tasks?db=2&ca=/etc/a%20b").unwrap();
        assert_eq!(queue_name(&url).unwrap(), "geo tasks");
        assert_eq!(credentials(&url), (Some("me".into()), Some("p@s+s&=".into())));
        assert_eq!((host(&url), parameter(&url, "ca")), ("::1".into(), Some("/etc/a b".into())));
        assert_eq!(only(&url, &["db", "ca"]), Ok(()));
        assert!(only(&url, &["db"]).is_err());
        assert!(queue_name(&Url::parse("nats://host/").unwrap()).is_err());
    }
}
