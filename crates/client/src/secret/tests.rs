use super::*;
use std::io::Write;
use url::Url;

#[test]
fn a_reference_is_a_reference() {
    assert_eq!("env:GEO_KEY".parse(), Ok(SecretRef::Env("GEO_KEY".into())));
    assert_eq!("file:/run/key".parse(), Ok(SecretRef::File("/run/key".into())));
    for bad in ["", "GEO_KEY", "env:", "file:", "env:A B", "env:sk-live-12345", "vault:x", "sk:live"] {
        assert_eq!(bad.parse::<SecretRef>(), Err(SecretError::NotARef), "{bad}");
    }
    assert!(!SecretError::NotARef.to_string().contains("sk"));
}

#[test]
fn a_file_is_read_without_its_last_line_break() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"top secret\r\n").unwrap();
    let from = SecretRef::File(file.path().into());
    let secret = from.fetch().unwrap();
    assert_eq!(secret.reveal(), "top secret");
    assert_eq!(format!("{secret:?}"), "***");
    file.as_file().set_len(0).unwrap();
    assert_eq!(from.fetch(), Err(SecretError::Empty(from.clone())));
    file.as_file().set_len(FILE_BYTES_MAX + 1).unwrap();
    assert!(matches!(from.fetch(), Err(SecretError::File(..))));
    assert!(matches!(SecretRef::File("/nowhere/at/all".into()).fetch(), Err(SecretError::File(..))));
    let unset = SecretRef::Env("TIDEGATE_TEST_NEVER_SET".into());
    assert_eq!(unset.fetch(), Err(SecretError::Env("TIDEGATE_TEST_NEVER_SET".into())));
}

#[test]
fn urls_lose_their_secrets_and_keep_the_rest() {
    let mut redactor = Redactor::new();
    redactor.add_name("Mandant");
    for (url, want) in [
        ("https://u:p@a.test/x?q=1&key=K#f", "https://a.test/x?q=1&key=***"),
        ("https://a.test/?API_KEY=K&q=a%20b", "https://a.test/?API_KEY=***&q=a+b"),
        (
            "https://a.test/?access_token=K&sig=S&app_id=A",
            "https://a.test/?access_token=***&sig=***&app_id=***",
        ),
        (
            "https://a.test/?X-Amz-Signature=K&X-Amz-Date=D",
            "https://a.test/?X-Amz-Signature=***&X-Amz-Date=***",
        ),
        ("https://a.test/?mandant=7&monkey=1", "https://a.test/?mandant=***&monkey=1"),
        ("https://a.test/?q=Keyser", "https://a.test/?q=Keyser"),
    ] {
        assert_eq!(redactor.url(&Url::parse(url).unwrap()), want);
    }
}

#[test]
fn values_are_masked_wherever_they_appear() {
    let mut redactor = Redactor::new();
    redactor.add(&Secret::new("p+ss/w rd".into()));
    redactor.add(&Secret::new("abc".into()));
    let text = "a p+ss/w rd, as p%2Bss%2Fw+rd and p+ss/w%20rd, but abc";
    assert_eq!(redactor.text(text), "a ***, as *** and ***, but abc");
    let text = r"p%2bss%2fw%20rd, p+ss\/w rd, p\u002bss\u002Fw rd, p+ss/w r";
    assert_eq!(redactor.text(text), "***, ***, ***, p+ss/w r");
    assert_eq!(&*redactor.bytes(b"\xffp+ss/w rd\xff"), b"\xff***\xff");
    let url = Url::parse("https://a.test/p%2Bss%2Fw+rd/x").unwrap();
    assert_eq!(redactor.url(&url), "https://a.test/***/x");
    let header = |name: &'static str, value: &'static str| {
        redactor.header(&http::HeaderName::from_static(name), &http::HeaderValue::from_static(value))
    };
    assert_eq!(header("authorization", "Bearer x"), "***");
    assert_eq!(header("x-custom-token", "x"), "***");
    assert_eq!(header("x-note", "see p+ss/w rd"), "see ***");
    assert_eq!(header("x-ratelimit-remaining", "5"), "5");
    let mut hidden = http::HeaderValue::from_static("x");
    hidden.set_sensitive(true);
    assert_eq!(redactor.header(&http::HeaderName::from_static("x-plain"), &hidden), "***");
}
