//! Blocks that are pictures of their own: a repair decodes them.

use std::path::Path;
use std::sync::Arc;

use tidegate_core::Code;
use tidegate_raster::repair::{Proof, RepairError, RepairOptions, RepairOutcome, diagnose, repair};
use tidegate_raster::{FileBytes, GeoTiff, RasterLimits};

fn opened(path: &Path) -> GeoTiff {
    GeoTiff::open(Arc::new(FileBytes::open(path).unwrap()), &RasterLimits::default()).unwrap()
}

#[test]
fn blocks_that_cannot_be_decoded_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["jpeg", "webp", "lerc", "lerc-zstd"] {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{name}.tif"));
        let report = diagnose(&fixture, &RepairOptions::default()).unwrap();
        assert_eq!((report.outcome, report.proof), (RepairOutcome::Sound, Proof::None), "{name}");

        let sound = opened(&fixture);
        let place = sound.block_place(0, 4).unwrap().unwrap();
        let mut bytes = std::fs::read(&fixture).unwrap();
        // Behind the mark by which its codec is known.
        bytes[place.start as usize + 10..place.end as usize].fill(0xaa);
        let (input, output) = (dir.path().join("in.tif"), dir.path().join(format!("{name}.tif")));
        std::fs::write(&input, &bytes).unwrap();
        let Err(RepairError::Refused(refusal)) = repair(&input, &output, &RepairOptions::default()) else {
            panic!("{name} was not refused")
        };
        assert_eq!(refusal.code, Code::CORRUPTED_BLOCK, "{name}: {}", refusal.reason);
        let partial = RepairOptions { partial: true, ..RepairOptions::default() };
        let report = repair(&input, &output, &partial).unwrap();
        assert_eq!((report.outcome, report.blocks_lost), (RepairOutcome::Partial, vec![4]), "{name}");
        // The lower middle one of 3 x 2 tiles of 16 pixels, of which 13 rows are in the picture.
        assert_eq!((report.blocks, report.pixels_lost), (6, 16 * 13), "{name}");
        let made = opened(&output);
        let mask = made.read_mask(0, made.head().window()).unwrap().unwrap();
        assert_eq!(mask.iter().filter(|value| **value == 0).count(), 16 * 13, "{name}");
    }
}
