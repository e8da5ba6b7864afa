//! The kinds of services, and how a URL or a profile tells one.

use super::error::SourceError;
use super::file;
use crate::profile::{Profile, Profiles};
use std::path::Path;
use tidegate_geo::format::Format;
use url::Url;

/// A kind of service that features come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// A Web Feature Service.
    Wfs,
    /// OGC API Features.
    Ogc,
    /// An ArcGIS FeatureServer or MapServer.
    Esri,
    /// A STAC API.
    Stac,
    /// A web server that has a file.
    File,
}

impl ServiceKind {
    /// All of them.
    pub const ALL: [ServiceKind; 5] =
        [ServiceKind::Wfs, ServiceKind::Ogc, ServiceKind::Esri, ServiceKind::Stac, ServiceKind::File];

    /// The name of its profile.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ServiceKind::Wfs => "geoserver-wfs",
            ServiceKind::Ogc => "ogcapi",
            ServiceKind::Esri => "esri",
            ServiceKind::Stac => "stac",
            ServiceKind::File => "file",
        }
    }

    /// All names, for messages.
    #[must_use]
    pub fn names() -> String {
        ServiceKind::ALL.map(ServiceKind::name).join(", ")
    }

    /// What a profile speaks: it is one of these, or extends one.
    #[must_use]
    pub fn of_profile(profile: &Profile) -> Option<ServiceKind> {
        let known = |name: &str| ServiceKind::ALL.into_iter().find(|which| which.name() == name);
        known(profile.name()).or_else(|| known(profile.form().extends.as_ref()?.as_str()))
    }

    /// What a URL tells by its form.
    #[must_use]
    pub fn of_url(url: &Url) -> Option<ServiceKind> {
        let path = url.path().trim_end_matches('/').to_ascii_lowercase();
        let is_wfs = |(name, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)| {
            name.eq_ignore_ascii_case("service") && value.eq_ignore_ascii_case("wfs")
        };
        if path.contains("/featureserver") || path.contains("/mapserver/") {
            Some(ServiceKind::Esri)
        } else if path.ends_with("/wfs") || path.ends_with("/ows") || url.query_pairs().any(is_wfs) {
            Some(ServiceKind::Wfs)
        } else if path.contains("/collections") {
            Some(ServiceKind::Ogc)
        } else if path.ends_with("/search") || path.contains("/stac") {
            Some(ServiceKind::Stac)
        } else {
            Format::of_path(Path::new(&path)).map(|_| ServiceKind::File)
        }
    }

    /// How it speaks if no other profile is named.
    ///
    /// # Errors
    /// Never, unless the program is broken.
    pub fn profile(self) -> Result<Profile, SourceError> {
        if self == ServiceKind::File {
            return file::profile();
        }
        Profiles::one(self.name(), None).map_err(|e| SourceError::setup(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_often_tells_what_it_is() {
        for (url, which) in [
            ("https://x.test/arcgis/rest/services/p/FeatureServer/0", Some(ServiceKind::Esri)),
            ("https://x.test/geoserver/ows", Some(ServiceKind::Wfs)),
            ("https://x.test/map?SERVICE=WFS", Some(ServiceKind::Wfs)),
            ("https://x.test/api/collections/a/items", Some(ServiceKind::Ogc)),
            ("https://x.test/stac/v1", Some(ServiceKind::Stac)),
            ("https://x.test/a/roads.FGB?x=1", Some(ServiceKind::File)),
            ("https://x.test/api", None),
        ] {
            assert_eq!(ServiceKind::of_url(&Url::parse(url).unwrap()), which, "{url}");
        }
    }

    #[test]
    fn every_kind_has_its_profile() {
        for which in ServiceKind::ALL {
            assert_eq!(ServiceKind::of_profile(&which.profile().unwrap()), Some(which));
        }
    }
}
