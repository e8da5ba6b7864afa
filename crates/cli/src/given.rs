//! The options that take an address or a key, and what no option takes.
//!
//! An option of this kind has one of the types here, and a test over all options of all commands holds
//! that. None of them quotes a value that it refuses: `--key 0123…` is most likely the key itself.
//! What holds for every other word, also for paths, is in [`parse`]: a URL with a credential would be
//! in the list of processes and in the history of the shell, and `env:NAME` must not become the name of
//! a file.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use clap::builder::{TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};
use serde::{Serialize, Serializer};
use tidegate_client::secret::{
    self, SecretError, SecretInUrl, SecretRef, looks_like_reference, secret_in_url,
};
use tidegate_core::quote::scheme;
use url::Url;

/// A value that is read without being quoted in an error.
pub(crate) trait Unquoted: Clone + Send + Sync + 'static {
    fn read(text: &str) -> Result<Self, String>;
}

/// Reads an [`Unquoted`] value for clap.
#[derive(Clone)]
pub(crate) struct UnquotedParser<T>(PhantomData<T>);

impl<T: Unquoted> TypedValueParser for UnquotedParser<T> {
    type Value = T;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        let read = value.to_str().ok_or_else(|| "this is not valid UTF-8".to_owned()).and_then(T::read);
        read.map_err(|why| {
            let option = arg.map(|arg| format!("{}: ", shown(arg))).unwrap_or_default();
            clap::Error::raw(ErrorKind::ValueValidation, format!("{option}{why}\n")).with_cmd(cmd)
        })
    }
}

/// An option as it is written, without its value.
fn shown(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let name = names.first().map_or_else(|| arg.get_id().to_string(), ToString::to_string);
    match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => name,
    }
}

macro_rules! unquoted {
    ($($name:ident),*) => {$(
        impl ValueParserFactory for $name {
            type Parser = UnquotedParser<$name>;
            fn value_parser() -> UnquotedParser<$name> {
                UnquotedParser(PhantomData)
            }
        }
    )*};
}

unquoted!(GivenAddress, Reference, PlainAddress, ServiceUrl, KeyFile, RasterFile);

/// The address of a store, a queue, a database or a fleet, or a reference to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GivenAddress(secret::Given);

impl Unquoted for GivenAddress {
    fn read(text: &str) -> Result<GivenAddress, String> {
        text.parse().map(GivenAddress).map_err(|why: secret::GivenError| why.to_string())
    }
}

impl Deref for GivenAddress {
    type Target = secret::Given;
    fn deref(&self) -> &secret::Given {
        &self.0
    }
}

impl fmt::Display for GivenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for GivenAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A reference to a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference(SecretRef);

impl Unquoted for Reference {
    fn read(text: &str) -> Result<Reference, String> {
        text.parse().map(Reference).map_err(|_: SecretError| {
            "this must be a reference to the secret, not the secret itself: env:NAME with the name of an environment variable (letters, digits and _), or file:PATH".to_owned()
        })
    }
}

impl Deref for Reference {
    type Target = SecretRef;
    fn deref(&self) -> &SecretRef {
        &self.0
    }
}

/// An address that is no secret, such as that of a bucket or a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlainAddress(String);

impl Unquoted for PlainAddress {
    fn read(text: &str) -> Result<PlainAddress, String> {
        match refused(text) {
            Some(why) => Err(why),
            None => Ok(PlainAddress(text.to_owned())),
        }
    }
}

impl Deref for PlainAddress {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PlainAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The URL of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceUrl(Url);

impl Unquoted for ServiceUrl {
    fn read(text: &str) -> Result<ServiceUrl, String> {
        if let Some(why) = refused(text) {
            return Err(why);
        }
        Url::parse(text).map(ServiceUrl).map_err(|e| format!("this is no URL: {e}"))
    }
}

impl Deref for ServiceUrl {
    type Target = Url;
    fn deref(&self) -> &Url {
        &self.0
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A file with keys that is written, too: its path, or file:PATH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyFile(PathBuf);

impl Unquoted for KeyFile {
    fn read(text: &str) -> Result<KeyFile, String> {
        match text.parse::<secret::Given>() {
            Ok(secret::Given::Plain(path)) => Ok(KeyFile(path.into())),
            Ok(secret::Given::Reference(SecretRef::File(path))) => Ok(KeyFile(path)),
            _ => Err("the key is written to a file; write its path, or file:PATH".to_owned()),
        }
    }
}

impl Deref for KeyFile {
    type Target = PathBuf;
    fn deref(&self) -> &PathBuf {
        &self.0
    }
}

/// A raster that is read: a path, an address, or a reference to an address, because a signed one is a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RasterFile(PathBuf);

impl Unquoted for RasterFile {
    fn read(text: &str) -> Result<RasterFile, String> {
        if scheme(text) != Some("file") {
            text.parse::<secret::Given>().map_err(|why| why.to_string())?;
        }
        Ok(RasterFile(text.into()))
    }
}

impl Deref for RasterFile {
    type Target = PathBuf;
    fn deref(&self) -> &PathBuf {
        &self.0
    }
}

impl AsRef<Path> for RasterFile {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

/// Why a text is no address without a secret.
fn refused(text: &str) -> Option<String> {
    if is_reference(text) {
        return Some(
            "this option does not take a reference; write the address itself. A key is a reference: --key env:NAME"
                .to_owned(),
        );
    }
    secret_in_url(text).map(without)
}

/// Whether a text is or was meant to be a reference. `file:///dir` is a URL.
fn is_reference(text: &str) -> bool {
    looks_like_reference(text) && scheme(text).is_none()
}

/// What to write instead of a URL with a credential.
fn without(what: SecretInUrl) -> String {
    format!(
        "the URL holds {what}, and every user of this machine can read command lines. Give the key of a service with --key env:NAME, that of a bucket with its options; for the URL of a database, a queue or a store, put the whole URL into an environment variable or a file, and write env:NAME or file:PATH"
    )
}

/// Reads the words of a command line, the name of the program first.
pub(crate) fn parse<A: CommandFactory + FromArgMatches>(words: Vec<OsString>) -> Result<A, clap::Error> {
    let mut command = A::command();
    let refuse = |command: &mut Command, why: String| {
        Err(clap::Error::raw(ErrorKind::ValueValidation, format!("{why}\n")).with_cmd(command))
    };
    let mut before = None;
    for word in words.iter().skip(1) {
        let word = word.to_string_lossy();
        if let Some(what) = secret_in_url(&word) {
            let option = word.split_once('=').map(|(option, _)| option.to_owned()).or(before);
            let option = option.filter(|option| option.starts_with('-') && secret_in_url(option).is_none());
            let option = option.map(|option| format!("{option}: ")).unwrap_or_default();
            return refuse(&mut command, format!("{option}{}", without(what)));
        }
        before = Some(word.into_owned());
    }
    let mut matches = command.try_get_matches_from_mut(words)?;
    if let Some(option) = path_with_reference(&command, &matches) {
        let why = "a path is expected here, and this begins like a reference; for a file of such a name write ./env:…";
        return refuse(&mut command, format!("{option}: {why}"));
    }
    A::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// The first option for a path that was given a reference.
fn path_with_reference(command: &Command, matches: &ArgMatches) -> Option<String> {
    for arg in command.get_arguments() {
        // Of another type, or not given: there is no path.
        let paths = matches.try_get_many::<PathBuf>(arg.get_id().as_str()).ok().flatten();
        if paths.into_iter().flatten().any(|path| path.to_str().is_some_and(is_reference)) {
            return Some(shown(arg));
        }
    }
    let (name, matches) = matches.subcommand()?;
    path_with_reference(command.find_subcommand(name)?, matches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::any::TypeId;

    /// Every option of every command that takes a value, with the words of the command.
    fn options(command: &Command, path: &str, found: &mut Vec<(String, Arg)>) {
        let own = command.get_arguments().filter(|arg| arg.get_action().takes_values());
        found.extend(own.map(|arg| (format!("{path} {}", shown(arg)), arg.clone())));
        for sub in command.get_subcommands() {
            options(sub, &format!("{path} {}", sub.get_name()), found);
        }
    }

    /// Whether an option takes an address or a key, by what its help says.
    fn is_address(arg: &Arg) -> bool {
        const NAMES: [&str; 8] = ["STORE", "PLACE", "SERVER", "URL", "REF", "QUEUE", "FILE|URL", "DATABASE"];
        const OPTIONS: [&str; 10] =
            ["store", "queue", "dead-letters", "anchor", "shared", "url", "endpoint", "key", "sink", "also"];
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().any(|name| NAMES.contains(&name.as_str()))
            || arg.get_long().is_some_and(|long| OPTIONS.contains(&long))
            || ["://", "env:"].iter().any(|word| help.contains(word))
    }

    /// Options that look like one and are none: they select by a text, or name a column or an object.
    const OTHERS: [&str; 3] = ["audit show --key", "store put --as", "submit --key"];

    #[test]
    fn every_option_for_an_address_or_a_key_has_a_type_of_this_module() {
        let types = [
            TypeId::of::<GivenAddress>(),
            TypeId::of::<Reference>(),
            TypeId::of::<PlainAddress>(),
            TypeId::of::<ServiceUrl>(),
            TypeId::of::<KeyFile>(),
            TypeId::of::<RasterFile>(),
            // Every path is checked by `parse`.
            TypeId::of::<PathBuf>(),
        ];
        let mut found = Vec::new();
        options(&crate::Args::command(), "", &mut found);
        assert!(found.len() > 300, "{}", found.len());
        let mut ours = 0;
        for (name, arg) in found.iter().filter(|(_, arg)| is_address(arg)) {
            if OTHERS.contains(&name.trim()) {
                continue;
            }
            let kind = arg.get_value_parser().type_id();
            assert!(
                types.iter().any(|known| kind == *known),
                "{name} takes an address: use a type of given.rs"
            );
            ours += 1;
        }
        assert!(ours > 40, "{ours}");
        for other in OTHERS {
            assert!(found.iter().any(|(name, _)| name.trim() == other), "{other} is gone");
        }
    }

    #[test]
    fn a_key_is_refused_without_being_quoted() {
        for words in ["geocode a.csv --key 0123456789abcdef", "geocode a.csv --key=0123456789abcdef"] {
            let words = std::iter::once("tidegate").chain(words.split(' ')).map(OsString::from).collect();
            let Err(why) = parse::<crate::Args>(words) else { panic!("it was accepted") };
            let said = why.render().to_string();
            assert!(said.contains("--key: ") && !said.contains("0123456789"), "{said}");
        }
    }
}
