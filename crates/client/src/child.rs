//! Starts programs, with no more of the environment than they need.
//!
//! The environment of an operator holds the keys of services and databases. A remedy, an alert or a
//! child of our own gets a list of harmless variables, and what a person named for it. There is one
//! place in which commands are made: `clippy.toml` bans `Command::new` elsewhere.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::process::Command;

/// What any program may know: where programs, files and words are.
const HARMLESS: [&str; 20] = [
    "HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    // Without these, programs of Windows do not start.
    "COMSPEC",
    "PATHEXT",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
    // Python in a virtual environment finds its packages by it.
    "VIRTUAL_ENV",
];

/// What `tidegate` itself reads besides, or what starts its names.
const OWN: [&str; 26] = [
    "TIDEGATE_",
    "AWS_",
    "AZURE_",
    "GOOGLE_",
    "IDENTITY_",
    "MSI_",
    "ALL_PROXY",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "PROJ_DATA",
    "PUBSUB_EMULATOR_HOST",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "XDG_",
    "RUST_BACKTRACE",
    // The program may be a Python with our module.
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "PYTHONHOME",
    "PYTHONPATH",
    "HOSTNAME",
    "COMPUTERNAME",
];

/// A variable that was named for a program, and cannot be passed to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassError {
    /// It is no name of a variable. The text is not kept: it may be a value.
    Name,
    /// It is not set.
    Unset(String),
}

impl fmt::Display for PassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PassError::Name => {
                f.write_str("the environment to pass on is a list of names of variables, such as GEO_KEY")
            }
            PassError::Unset(name) => write!(
                f,
                "the environment variable {name}, which is to be passed on, is not set; set it, or do not name it"
            ),
        }
    }
}

impl std::error::Error for PassError {}

/// Whether a text is the name of a variable that can be passed on.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let starts = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    starts && text.len() <= 255 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// A program that a rule or an action names. Of the environment it gets what is harmless, and these
/// variables.
///
/// # Errors
/// When one of them has no name of a variable, or is not set.
pub fn command(program: impl AsRef<OsStr>, pass: &[String]) -> Result<Command, PassError> {
    let mut command = bare(program.as_ref());
    command.envs(std::env::vars_os().filter(|(name, _)| is_harmless(name)));
    for name in pass {
        if !is_name(name) {
            return Err(PassError::Name);
        }
        let value = std::env::var_os(name).ok_or_else(|| PassError::Unset(name.clone()))?;
        command.env(name, value);
    }
    Ok(command)
}

/// This program again, for a part of its own work. Of the environment it gets what it reads, and the
/// variables to which its manifest refers.
#[must_use]
pub fn own(program: impl AsRef<OsStr>, refers: impl Fn(&str) -> bool) -> Command {
    let mut command = bare(program.as_ref());
    let is_own = |name: &OsString| {
        let name = name.to_str().unwrap_or_default();
        OWN.iter().any(|own| if own.ends_with('_') { name.starts_with(own) } else { name == *own })
            || refers(name)
    };
    command.envs(std::env::vars_os().filter(|(name, _)| is_harmless(name) || is_own(name)));
    command
}

/// A program that a person chose for themselves at the terminal, such as the editor. It is theirs,
/// and so is the environment.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "this is the place in which commands are made")]
pub fn of_person(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

#[allow(clippy::disallowed_methods, reason = "this is the place in which commands are made")]
fn bare(program: &OsStr) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    command
}

fn is_harmless(name: &OsString) -> bool {
    let Some(name) = name.to_str() else { return false };
    // Windows does not tell upper from lower case.
    let is = |known: &&str| if cfg!(windows) { known.eq_ignore_ascii_case(name) } else { *known == name };
    name.starts_with("LC_") || HARMLESS.iter().any(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_what_is_harmless_and_what_was_named() {
        let names = |command: &Command| -> Vec<String> {
            command.get_envs().map(|(name, _)| name.to_string_lossy().into_owned()).collect()
        };
        let plain = command("true", &[]).unwrap();
        assert!(
            names(&plain).iter().all(|name| name.starts_with("LC_") || HARMLESS.contains(&name.as_str()))
        );
        // Cargo sets it for every test.
        let named = command("true", &["CARGO_MANIFEST_DIR".to_owned()]).unwrap();
        assert!(names(&named).contains(&"CARGO_MANIFEST_DIR".to_owned()));
        let own = own("true", |name| name == "CARGO_MANIFEST_DIR");
        assert!(names(&own).contains(&"CARGO_MANIFEST_DIR".to_owned()));
        assert!(!names(&own).contains(&"CARGO_PKG_NAME".to_owned()));
    }

    #[test]
    fn a_name_is_a_name_that_is_set() {
        for text in ["", "A=B", "1A", "A B", "A-B", "ä", "A\0"] {
            assert!(!is_name(text), "{text:?}");
            assert_eq!(command("true", &[text.to_owned()]).err(), Some(PassError::Name), "{text:?}");
        }
        let unset = "TIDEGATE_TEST_NEVER_SET".to_owned();
        assert_eq!(command("true", std::slice::from_ref(&unset)).err(), Some(PassError::Unset(unset)));
    }
}
