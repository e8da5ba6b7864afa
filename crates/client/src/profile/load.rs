//! Loads profiles and reports their errors.

use super::form::ProfileSpec;
use super::{Profile, ProfileError};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use tidegate_core::suggest::question;

macro_rules! embedded {
    ($($name:literal)*) => {
        /// The profiles embedded in the binary: name and source.
        pub const EMBEDDED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../profiles/", $name, ".yaml")))),*];
    };
}

embedded! {
    "generic" "geoserver-wfs" "ogcapi" "esri" "stac" "overpass" "google" "mapbox" "here" "opencage"
    "nominatim" "pelias" "photon" "us-census" "csv2geo" "sentinel-hub" "s3" "azure-blob" "gcs" "tiles"
}

/// The largest profile file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// An error in a profile file, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileProblem {
    /// The file, or the name of an embedded profile.
    pub file: String,
    /// The line, from 1, if known.
    pub line: Option<u64>,
    /// The column, from 1.
    pub column: Option<u64>,
    /// The error message, with a suggestion where there is one.
    pub what: String,
}

impl fmt::Display for ProfileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for ProfileProblem {}

/// All profiles by name.
#[derive(Clone, Debug)]
pub struct Profiles {
    all: BTreeMap<String, Loaded>,
}

/// A profile with its source and file.
#[derive(Clone, Debug)]
struct Loaded {
    profile: Profile,
    source: String,
    file: Option<String>,
}

impl Profiles {
    /// The embedded profiles.
    pub fn embedded() -> Result<Profiles, ProfileProblem> {
        let mut profiles = Profiles { all: BTreeMap::new() };
        for (name, source) in EMBEDDED {
            profiles.add(name, source, None)?;
        }
        Ok(profiles)
    }

    /// One embedded profile, without parsing the others.
    pub fn embedded_one(name: &str) -> Option<Result<Profile, ProfileProblem>> {
        let (name, source) = EMBEDDED.iter().find(|(n, _)| *n == name)?;
        Some(parse(name, source).and_then(|form| ready(name, form)))
    }

    /// The profile of this name, from `path` or else embedded. Others are parsed only if needed,
    /// because parsing all takes longer than many a run.
    ///
    /// # Errors
    /// When there is none, or a profile that had to be read is invalid.
    pub fn one(name: &str, path: Option<&Path>) -> Result<Profile, ProfileError> {
        match (path, Profiles::embedded_one(name)) {
            (None, Some(profile)) => Ok(profile?),
            (path, _) => {
                let mut all = Profiles::embedded()?;
                if let Some(path) = path {
                    all = all.with(path)?;
                }
                all.get(name).cloned()
            }
        }
    }

    /// Adds a user's profiles: a file, or every `*.yaml` and `*.yml` in a directory, ordered by
    /// name. They replace profiles of the same name; with `extends` they can build on any earlier
    /// one, including the one replaced.
    pub fn with(mut self, path: &Path) -> Result<Profiles, ProfileProblem> {
        let trouble = |file: &Path, what: String| ProfileProblem {
            file: file.display().to_string(),
            line: None,
            column: None,
            what,
        };
        let mut files = Vec::new();
        if path.is_dir() {
            let entries = std::fs::read_dir(path).map_err(|e| trouble(path, e.to_string()))?;
            for entry in entries {
                let file = entry.map_err(|e| trouble(path, e.to_string()))?.path();
                if file.extension().is_some_and(|e| e == "yaml" || e == "yml") {
                    files.push(file);
                }
            }
            files.sort();
        } else {
            files.push(path.to_owned());
        }
        for file in files {
            let size = std::fs::metadata(&file).map_err(|e| trouble(&file, e.to_string()))?.len();
            if size > FILE_BYTES_MAX {
                return Err(trouble(&file, format!("profile too large: {size} bytes")));
            }
            let source = std::fs::read_to_string(&file).map_err(|e| trouble(&file, e.to_string()))?;
            self.add(&file.display().to_string(), &source, Some(&file))?;
        }
        Ok(self)
    }

    /// Adds a profile from its source.
    pub fn with_source(mut self, file: &str, source: &str) -> Result<Profiles, ProfileProblem> {
        self.add(file, source, Some(Path::new(file)))?;
        Ok(self)
    }

    fn add(&mut self, label: &str, source: &str, file: Option<&Path>) -> Result<(), ProfileProblem> {
        let form = parse(label, source)?;
        let form = match &form.extends {
            None => form,
            Some(base) => match self.all.get(base.as_str()) {
                Some(base) => form.over(&base.profile.form),
                None => {
                    return Err(problem(
                        label,
                        format!("`extends`: no profile `{base}`{}", question(base.as_str(), &self.names())),
                    ));
                }
            },
        };
        let profile = ready(label, form)?;
        let loaded =
            Loaded { source: source.to_owned(), file: file.map(|f| f.display().to_string()), profile };
        self.all.insert(loaded.profile.name().to_owned(), loaded);
        Ok(())
    }

    /// The names in order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.all.keys().map(String::as_str).collect()
    }

    /// All profiles, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.all.values().map(|l| &l.profile)
    }

    /// The profile of this name.
    ///
    /// # Errors
    /// When there is none; the message lists the names.
    pub fn get(&self, name: &str) -> Result<&Profile, ProfileError> {
        self.loaded(name).map(|l| &l.profile)
    }

    /// The YAML of the profile of this name.
    ///
    /// # Errors
    /// When there is none; the message lists the names.
    pub fn source(&self, name: &str) -> Result<&str, ProfileError> {
        self.loaded(name).map(|l| l.source.as_str())
    }

    /// The file of the profile; `None` if it is embedded.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<&str> {
        self.all.get(name)?.file.as_deref()
    }

    fn loaded(&self, name: &str) -> Result<&Loaded, ProfileError> {
        let unknown =
            || ProfileError::Unknown { name: name.to_owned(), known: self.all.keys().cloned().collect() };
        self.all.get(name).ok_or_else(unknown)
    }
}

fn ready(label: &str, form: ProfileSpec) -> Result<Profile, ProfileProblem> {
    Profile::new(form).map_err(|e| problem(label, e.to_string()))
}

fn problem(file: &str, what: String) -> ProfileProblem {
    ProfileProblem { file: file.to_owned(), line: None, column: None, what }
}

fn parse(file: &str, source: &str) -> Result<ProfileSpec, ProfileProblem> {
    serde_saphyr::from_str::<ProfileSpec>(source).map_err(|error| {
        let error = error.without_snippet();
        let at = error.location();
        let what = match error {
            serde_saphyr::Error::SerdeUnknownField { field, expected, .. } => {
                format!("unknown key `{field}`{}", question(field, expected))
            }
            serde_saphyr::Error::SerdeUnknownVariant { variant, expected, .. } => {
                format!("`{variant}` is not one of {}{}", expected.join(", "), question(variant, expected))
            }
            serde_saphyr::Error::SerdeMissingField { field, .. } => format!("missing key `{field}`"),
            other => {
                let told = other.to_string();
                let first = told.lines().next().unwrap_or_default();
                first.split_once(" at line ").map_or(first, |(what, _)| what).to_owned()
            }
        };
        ProfileProblem {
            file: file.to_owned(),
            line: at.map(|l| l.line()),
            column: at.map(|l| l.column()),
            what,
        }
    })
}
