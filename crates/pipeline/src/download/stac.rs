//! The assets of STAC items, as a list to download.
//!
//! An item is a line of GeoJSON as `fetch` writes it, with the member `assets`. The key of an asset
//! is `collection/item/asset.ext`. Names come from the service, so every character that is not safe
//! in a file name is replaced.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tidegate_core::content::ContentKind;
use url::Url;

use super::{DownloadItem, StatedChecksum};

/// The assets of a list of items.
#[derive(Debug, Default)]
pub struct AssetList {
    /// What to download.
    pub items: Vec<DownloadItem>,
    /// The number of items read.
    pub read: u64,
    /// Assets that cannot be downloaded, with the reason.
    pub missing: Vec<(String, String)>,
    /// The names of all assets, and how many items have each.
    pub names: BTreeMap<String, u64>,
    /// Checksums by functions that are not known here.
    pub unknown_checksums: u64,
}

#[derive(Deserialize)]
struct Asset {
    href: String,
    #[serde(rename = "type")]
    media_type: Option<String>,
    #[serde(rename = "file:size")]
    size: Option<u64>,
    #[serde(rename = "file:checksum")]
    checksum: Option<String>,
}

impl AssetList {
    /// Adds the assets of an item that are asked for; relative links start at `base`.
    ///
    /// # Errors
    /// When the line is not an item.
    pub fn add(&mut self, line: &str, wanted: &[String], base: &Url) -> Result<(), String> {
        let item: Value = serde_json::from_str(line).map_err(|e| format!("cannot read an item: {e}"))?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let inside = item.get("properties").unwrap_or(&Value::Null);
        let member = |name: &str| inside.get(name).or_else(|| item.get(name)).cloned().unwrap_or_default();
        let id = item.get("id").or_else(|| inside.get("id")).cloned().unwrap_or_default();
        let id = text(&id).unwrap_or_else(|| id.to_string());
        let collection = text(&member("collection")).unwrap_or_else(|| "items".to_owned());
        // A format without nested values holds them as text.
        let assets = match member("assets") {
            Value::String(held) => serde_json::from_str(&held).unwrap_or_default(),
            assets => assets,
        };
        let none = serde_json::Map::new();
        let assets = assets.as_object().unwrap_or(&none);
        self.read += 1;
        for name in assets.keys() {
            *self.names.entry(name.clone()).or_default() += 1;
        }
        for name in wanted {
            let folder = format!("{}/{}/{}", safe(&collection), safe(&id), safe(name));
            let Some(asset) = assets.get(name) else {
                self.missing.push((folder, "the item has no such asset".to_owned()));
                continue;
            };
            let asset: Asset = match serde_json::from_value(asset.clone()) {
                Ok(asset) => asset,
                Err(why) => {
                    self.missing.push((folder, format!("cannot read the asset: {why}")));
                    continue;
                }
            };
            let url = match base.join(&asset.href) {
                Ok(url) if matches!(url.scheme(), "http" | "https") => url,
                Ok(url) => {
                    let why = format!("{}: is not downloaded; expected http: or https:", url.scheme());
                    self.missing.push((folder, why));
                    continue;
                }
                Err(why) => {
                    self.missing.push((folder, format!("invalid link: {why}")));
                    continue;
                }
            };
            let file = url.path_segments().and_then(|mut all| all.next_back()).unwrap_or_default();
            let extension = file.rsplit_once('.').map(|(_, end)| safe(end)).filter(|end| end.len() <= 8);
            let checksum = asset.checksum.as_deref().and_then(StatedChecksum::parse);
            self.unknown_checksums += u64::from(asset.checksum.is_some() && checksum.is_none());
            let stated = asset.media_type.as_deref().and_then(ContentKind::of_media_type);
            self.items.push(DownloadItem {
                key: extension.map_or(folder.clone(), |extension| format!("{folder}.{extension}")),
                kind: stated.or_else(|| ContentKind::of_name(file)),
                url,
                body: None,
                size: asset.size,
                checksum,
            });
        }
        Ok(())
    }
}

/// A name as one segment of a key.
pub(crate) fn safe(name: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "-_.=+".contains(c) { c } else { '_' };
    let name: String = name.chars().take(120).map(plain).collect();
    match name.trim_matches('.') {
        "" => "_".to_owned(),
        _ => name.trim_start_matches('.').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assets_become_keys_that_stay_in_their_folder() {
        let line = r#"{"id":"../S2 A","properties":{"collection":"s2","assets":{
            "B04":{"href":"a/B04.tif","type":"image/tiff; application=geotiff","file:size":3,
                   "file:checksum":"1220ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
            "meta":{"href":"s3://b/meta.xml"},"odd":{"href":"https://x.test/odd?sig=1","file:checksum":"1114"}}}}"#;
        let base = Url::parse("https://stac.test/v1/search").unwrap_or_else(|_| unreachable!());
        let mut list = AssetList::default();
        let wanted = ["B04", "meta", "odd", "B99"].map(str::to_owned);
        assert_eq!(list.add(line, &wanted, &base), Ok(()));
        let keys: Vec<_> = list.items.iter().map(|item| (item.key.as_str(), item.url.as_str())).collect();
        assert_eq!(
            keys,
            [
                ("s2/_S2_A/B04.tif", "https://stac.test/v1/a/B04.tif"),
                ("s2/_S2_A/odd", "https://x.test/odd?sig=1"),
            ]
        );
        let first = list.items.first().map(|item| (item.size, item.kind, item.checksum.is_some()));
        assert_eq!(first, Some((Some(3), Some(ContentKind::Tiff), true)));
        let missing: Vec<_> = list.missing.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(
            (missing, list.unknown_checksums, list.read),
            (vec!["s2/_S2_A/meta", "s2/_S2_A/B99"], 1, 1)
        );
    }
}
