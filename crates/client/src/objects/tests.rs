#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests may fail loudly, and start programs"
)]

use std::fs;
use std::path::Path;

use super::*;

fn key() -> ObjectsKey {
    ObjectsKey::Manifest("source.tasks".into())
}

fn hosts(names: &[&str]) -> AllowedObjects {
    let mut allowed = AllowedObjects::nothing(key(), Path::new(""));
    names.iter().for_each(|name| allowed.host(name).unwrap());
    allowed
}

fn why(allowed: &AllowedObjects, text: &str) -> Option<ObjectRefusal> {
    allowed.address(text).err().map(|refused| refused.why)
}

#[test]
fn nothing_is_allowed_by_default_and_the_message_says_what_would() {
    let nothing = AllowedObjects::nothing(key(), Path::new(""));
    for (text, line) in [
        ("http://127.0.0.1:8080/x.geojson", r#"objects: { hosts: ["127.0.0.1:8080"] }"#),
        ("https://data.example.org/x?sig=secret", r#"objects: { hosts: ["data.example.org"] }"#),
        ("s3://else/scenes/a.tif", r#"objects: { buckets: ["s3://else"] }"#),
        ("scenes/a.tif", "objects: { folder: scenes }"),
        ("a.tif", "objects: { folder: . }"),
        ("/home/me/my data/a.tif", r#"objects: { folder: "/home/me/my data" }"#),
    ] {
        let refused = nothing.address(text).unwrap_err();
        let said = refused.to_string();
        assert_eq!(refused.code(), tidegate_core::Code::OBJECT_NOT_ALLOWED, "{text}");
        assert!(said.contains(line) && said.contains("`source.tasks`"), "{text}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
    assert_eq!(nothing.to_string(), "nothing may be opened");
}

#[test]
fn a_host_is_allowed_with_its_port_and_seen_through() {
    let allowed = hosts(&["127.0.0.1:8080", "Data.Example.org", "*.tiles.test", "[::1]:8080"]);
    for good in [
        "http://127.0.0.1:8080/x",
        "http://2130706433:8080/x",
        "http://0x7f.1:8080/x",
        "http://0177.0.0.1:8080/x",
        "HTTP://127.0.0.1:8080/x",
        "http://[::1]:8080/x",
        "https://data.example.org/x",
        "http://data.example.org./x",
        "https://a.tiles.test/x",
    ] {
        assert_eq!(why(&allowed, good), None, "{good}");
    }
    for bad in [
        "http://127.0.0.1/x",
        "http://127.0.0.1:8081/x",
        "http://127.0.0.2:8080/x",
        "http://[::ffff:127.0.0.1]:8080/x",
        "http://localhost:8080/x",
        "http://data.example.org:6379/",
        "http://data.example.org.evil.test/",
        "http://tiles.test/",
        "http://xtiles.test/",
        "http://169.254.169.254/latest/meta-data",
    ] {
        assert!(
            matches!(why(&allowed, bad), Some(ObjectRefusal::Host(_))),
            "{bad}: {:?}",
            why(&allowed, bad)
        );
    }
    for user in ["http://data.example.org@evil.test/", "http://me:pw@data.example.org/"] {
        assert_eq!(why(&allowed, user), Some(ObjectRefusal::UserName), "{user}");
    }
    for never in ["ftp://127.0.0.1:8080/x", "file:///etc/passwd", "data://x", "S3://b/k", "gopher://x/"] {
        assert!(matches!(why(&allowed, never), Some(ObjectRefusal::Scheme(_))), "{never}");
    }
}

/// Where a client may go for an address: to its host, and to no other that is allowed.
#[test]
fn redirects_stay_on_the_host() {
    let allowed = hosts(&["127.0.0.1:8080", "a.test", "b.test:8443"]);
    let of = |text: &str| match allowed.address(text).unwrap().into_place() {
        ObjectPlace::Web { allow, .. } => move |to: &str| allow.url(&Url::parse(to).unwrap()).is_ok(),
        other => panic!("{other:?}"),
    };
    let from_a = of("http://a.test/x");
    assert!(
        from_a("https://a.test/y") && !from_a("http://b.test:8443/") && !from_a("http://127.0.0.1:8080/")
    );
    let from_b = of("https://b.test:8443/x");
    assert!(from_b("https://b.test:8443/y") && !from_b("https://b.test/"));
}

#[test]
fn a_private_address_is_written_out_with_its_port() {
    let allowed = hosts(&["10.0.0.5", "localhost", "[fd00::1]"]);
    for text in ["http://10.0.0.5/x", "http://localhost/x", "http://[fd00::1]/x"] {
        assert!(matches!(why(&allowed, text), Some(ObjectRefusal::Private(_))), "{text}");
    }
    let said = allowed.address("http://10.0.0.5/x").unwrap_err().to_string();
    assert!(said.contains(r#"hosts: ["10.0.0.5:80"]"#), "{said}");
    let mut private = allowed;
    private.private();
    for text in ["http://10.0.0.5/x", "http://localhost/x", "http://[fd00::1]/x"] {
        assert_eq!(why(&private, text), None, "{text}");
    }
    assert_eq!(why(&hosts(&["10.0.0.5:80"]), "http://10.0.0.5/x"), None);
}

#[test]
fn what_is_no_host_or_bucket_is_refused_when_it_is_written() {
    let mut allowed = AllowedObjects::default();
    for bad in ["http://a.test", "a.test/x", "me@a.test", "a b", "a.test:port", "", "*", "*.10.0.0.1", "a.*"]
    {
        assert!(allowed.host(bad).is_err(), "{bad:?}");
    }
    for bad in ["scenes", "s3://", "http://a/b", "s3://b/../c", "s3://b*", "S3://b"] {
        assert!(allowed.bucket(bad).is_err(), "{bad:?}");
    }
    assert!(allowed.is_nothing());
}

#[test]
fn a_bucket_is_its_name_and_its_prefix() {
    let mut allowed = AllowedObjects::default();
    allowed.bucket("s3://Scenes/allowed/").unwrap();
    allowed.bucket("gs://all").unwrap();
    for good in ["s3://Scenes/allowed/a.tif", "s3://Scenes/allowed", "gs://all/a/b"] {
        assert_eq!(why(&allowed, good), None, "{good}");
    }
    for bad in
        ["s3://scenes/allowed/a", "s3://Scenes/allowed2/a", "s3://Scenes/other", "az://all/a", "s3://all/a"]
    {
        assert!(matches!(why(&allowed, bad), Some(ObjectRefusal::Bucket(_))), "{bad}");
    }
    for dots in ["s3://Scenes/allowed/../other", "s3://Scenes/allowed/%2e%2e/other", "gs://all/./a"] {
        assert_eq!(why(&allowed, dots), Some(ObjectRefusal::Dots), "{dots}");
    }
    assert_eq!(why(&allowed, "gs://all"), Some(ObjectRefusal::NoKey));
}

#[cfg(unix)]
#[test]
fn a_path_stays_in_its_folder() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for folder in ["scenes/deep", "private"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    for file in ["scenes/a.tif", "scenes/deep/b.tif", "private/p.tif", "private/p.prj", "scenes/c.shp"] {
        fs::write(at(file), "x").unwrap();
    }
    symlink(at("private"), at("scenes/out")).unwrap();
    symlink(at("private/p.tif"), at("scenes/link.tif")).unwrap();
    symlink(at("private/none"), at("scenes/dangling.tif")).unwrap();
    symlink(at("scenes/deep/b.tif"), at("scenes/inner.tif")).unwrap();
    symlink(at("private/p.prj"), at("scenes/c.prj")).unwrap();
    fs::write(at("scenes/d.tif"), "x").unwrap();
    fs::write(at("scenes/d.tif.msk"), "x").unwrap();
    symlink(at("private/p.prj"), at("scenes/d.tif.msk.aux.xml")).unwrap();
    symlink(at("scenes"), at("alias")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(at("scenes/pipe")).status().unwrap().success());

    for folder in ["scenes", "alias"] {
        let mut allowed = AllowedObjects::nothing(key(), dir.path());
        allowed.folder(folder);
        let real = fs::canonicalize(at("scenes")).unwrap();
        for (good, file) in [
            ("scenes/a.tif", "a.tif"),
            ("scenes/./deep//b.tif", "deep/b.tif"),
            ("scenes/inner.tif", "deep/b.tif"),
            ("alias/a.tif", "a.tif"),
            (at("scenes/a.tif").to_str().unwrap(), "a.tif"),
            (at("alias/a.tif").to_str().unwrap(), "a.tif"),
        ] {
            assert_eq!(allowed.file(good), Ok(real.join(file)), "{folder} {good}");
        }
        for (bad, wanted) in [
            ("scenes/../private/p.tif", ObjectRefusal::Dots),
            ("../private/p.tif", ObjectRefusal::Dots),
            ("private/p.tif", ObjectRefusal::Folder),
            ("private/none.tif", ObjectRefusal::Folder),
            ("scenes/link.tif", ObjectRefusal::Folder),
            ("scenes/out/p.tif", ObjectRefusal::Folder),
            ("scenes/out/none.tif", ObjectRefusal::Folder),
            ("scenes/out/none/none.tif", ObjectRefusal::Folder),
            ("scenes/dangling.tif", ObjectRefusal::Folder),
            ("/etc/passwd", ObjectRefusal::Folder),
            ("/etc/none", ObjectRefusal::Folder),
            ("/", ObjectRefusal::Folder),
            ("scenes/deep", ObjectRefusal::NotAFile),
            ("scenes/pipe", ObjectRefusal::NotAFile),
            ("scenes/none.tif", ObjectRefusal::Unreadable(std::io::ErrorKind::NotFound)),
            ("scenes/c.shp", ObjectRefusal::Beside("c.prj".into())),
            ("scenes/d.tif", ObjectRefusal::Beside("d.tif.msk.aux.xml".into())),
            ("scenes\\a.tif", ObjectRefusal::Characters),
            ("scenes/a.tif\0.txt", ObjectRefusal::Characters),
            ("scenes/a.tif\n", ObjectRefusal::Characters),
            ("", ObjectRefusal::Characters),
            ("file:scenes/a.tif", ObjectRefusal::Scheme("file".into())),
        ] {
            assert_eq!(why(&allowed, bad), Some(wanted), "{folder} {bad}");
        }
    }
}

#[test]
fn what_a_person_wrote_is_opened_word_for_word() {
    let mut allowed = AllowedObjects::nothing(key(), Path::new("/data"));
    allowed.written("http://10.0.0.1/scene.tif");
    allowed.written("../scene.tif");
    assert_eq!(allowed.file("../scene.tif"), Ok("/data/../scene.tif".into()));
    assert_eq!(why(&allowed, "http://10.0.0.1/scene.tif"), None);
    assert!(why(&allowed, "http://10.0.0.1/scene.tif?").is_some());
    assert_eq!(allowed.parts(), ["http://10.0.0.1/scene.tif", "../scene.tif"]);
}

#[test]
fn what_is_shown_holds_no_secret() {
    for (address, as_shown) in [
        ("https://me:secret@x.test/a.tif?sig=secret#secret", "https://x.test/a.tif"),
        ("s3://scenes/a.tif", "s3://scenes/a.tif"),
        ("scenes/what?.tif", "scenes/what?.tif"),
    ] {
        assert_eq!(shown(address), as_shown);
    }
}
