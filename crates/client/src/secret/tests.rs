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

#[test]
fn a_given_address_is_plain_or_a_reference_and_never_a_secret() {
    for (text, want) in [
        ("env:LETTERS_URL", Given::Reference(SecretRef::Env("LETTERS_URL".into()))),
        ("file:/run/url", Given::Reference(SecretRef::File("/run/url".into()))),
        ("letters.db", Given::Plain("letters.db".into())),
        ("./a:b/letters.db", Given::Plain("./a:b/letters.db".into())),
        ("C:\\letters.db", Given::Plain("C:\\letters.db".into())),
        ("environment:x", Given::Plain("environment:x".into())),
        ("postgres://me@db/gis?sslkey=/k", Given::Plain("postgres://me@db/gis?sslkey=/k".into())),
    ] {
        assert_eq!(text.parse(), Ok(want), "{text}");
        assert_eq!(text.parse::<Given>().map(|given| given.to_string()), Ok(text.to_owned()));
    }
    for text in [
        "env:",
        "ENV:A",
        "Env:A",
        "env:A B",
        "env:A-B",
        " env:A",
        "env :A",
        "file:",
        "FILE:x",
        "env:pg://u:p@h",
    ] {
        assert_eq!(text.parse::<Given>(), Err(GivenError::NotARef), "{text}");
    }
    for text in
        ["postgres://u:hunter2@h/d", "redis://:hunter2@h", "nats://hunter2@h", "https://h/?token=hunter2"]
    {
        let why = text.parse::<Given>().unwrap_err();
        assert!(matches!(why, GivenError::HasSecret(_)) && !why.to_string().contains("hunter2"), "{text}");
    }
}

#[test]
fn credentials_in_urls_are_found_in_every_spelling() {
    use SecretInUrl::{Parameter, Password, User};
    for (text, want) in [
        ("https://u:p@h/", Some(Password)),
        ("HTTPS://u:p@h/", Some(Password)),
        ("https://token@h/", Some(User)),
        ("https:/u:p@h/", Some(Password)),
        ("https:\\\\u:p@h/", Some(Password)),
        ("postgres://u:a/b@h/d", Some(Password)),
        ("postgres://h/d?user=u&password=p", Some(Password).and(Some(Parameter))),
        ("host=h user=u password=p", Some(Password)),
        ("https://h/?a=1&KEY=p", Some(Parameter)),
        ("https://h/?a=1&%6bey=p", Some(Parameter)),
        ("https://h/?a=1;token=p", Some(Parameter)),
        ("https://h/#access_token=p", Some(Parameter)),
        ("https://h/x?sig=p", Some(Parameter)),
        ("/x?api_key=p", Some(Parameter)),
        ("https://h/?key={key}", None),
        ("https://h/?key=", None),
        ("https://h/?key=env:K", None),
        ("https://h/@user/a:b", None),
        ("https://h/?q=a@b:c", None),
        ("nats://h/q?key=/etc/key.pem", None),
        ("sqs://123/q?secret_key=env:S", None),
        ("postgres://u@h/d", None),
        ("postgres://u:@h/d", None),
        ("s3://bucket/a:b@c", None),
        ("/owners/{id}?q=1", None),
        ("a,b", None),
    ] {
        assert_eq!(secret_in_url(text), want, "{text}");
    }
}

#[test]
fn text_for_people_is_masked_by_form_and_by_the_parts_of_a_fetched_url() {
    let line = "cannot reach https://u:hunter2@h/x?a=1&token=s3cret, see amqp://g:pw@h/q (or https://h/?q=1)";
    let want = "cannot reach https://u:***@h/x?a=1&token=***, see amqp://g:***@h/q (or https://h/?q=1)";
    assert_eq!(mask(line), want);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"amqp://someone:pl%2Fanted-1@h/q").unwrap();
    SecretRef::File(file.path().into()).fetch().unwrap();
    for part in ["pl/anted-1", "pl%2Fanted-1", "pl%2fanted-1", "c29tZW9uZTpwbC9hbnRlZC0x"] {
        assert_eq!(mask(&format!("said {part}.")), "said ***.", "{part}");
    }
}
