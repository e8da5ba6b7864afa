//! The source: polygons of 8 to 12 positions with five properties, one GeoJSON feature per line.

use std::f64::consts::TAU;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tidegate_core::{Chance, Rng};

/// Makes the file, if it is not there from an earlier run.
pub(crate) fn make(work: &Path, features: u64) -> Result<PathBuf, String> {
    let path = work.join(format!("{features}.geojsonl"));
    if !path.exists() {
        let half = work.join("half.geojsonl");
        write(&half, features)
            .and_then(|()| std::fs::rename(&half, &path))
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(path)
}

pub(crate) fn len(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |about| about.len())
}

fn write(path: &Path, features: u64) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut rng = Rng::new(7);
    let mut share = move || rng.unit();
    for id in 0..features {
        // Between 6 and 12 degrees east: zone 32 of UTM.
        let (x, y) = (6.0 + 6.0 * share(), 47.0 + 8.0 * share());
        let corners = 7 + (share() * 5.0) as u32;
        let (area, zone, built) = (1.0 + share() * 1e6, (share() * 5.0) as u8, share() < 0.5);
        write!(
            out,
            r#"{{"type":"Feature","properties":{{"PARCEL_ID":{id},"name":"parcel {id}","AREA":"{area:.3}","zone":"{}","built":{built}}},"geometry":{{"type":"Polygon","coordinates":[["#,
            char::from(b'A' + zone),
        )?;
        let mut first = String::new();
        for corner in 0..corners {
            let (angle, radius) = (TAU * f64::from(corner) / f64::from(corners), 0.0005 * (1.0 + share()));
            let position = format!("[{:.7},{:.7}]", x + radius * angle.cos(), y + radius * angle.sin());
            write!(out, "{position},")?;
            if corner == 0 {
                first = position;
            }
        }
        out.write_all(first.as_bytes())?;
        out.write_all(b"]]}}\n")?;
    }
    out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
}
