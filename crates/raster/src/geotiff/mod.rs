//! A GeoTIFF file that is read.

mod cache;
mod describe;
mod directory;
mod picture;
mod sidecar;
mod window;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::error::RasterError;
use crate::head::{MaskKind, RasterHead};
use crate::limits::RasterLimits;
use crate::sample::{SampleData, SampleType};
use crate::source::{ByteSource, SidecarName};
use cache::{BlockCache, BlockKey};
use describe::Pictures;
use directory::HeadBytes;
use picture::Picture;
pub(crate) use picture::sample_of;
pub(crate) use window::WindowBlocks;

/// A GeoTIFF file.
pub struct GeoTiff {
    bytes: HeadBytes,
    limits: RasterLimits,
    head: RasterHead,
    pictures: Pictures,
    cache: BlockCache,
    /// Packed blocks that were read ahead and will be copied, by the place where they begin.
    packed: Mutex<HashMap<u64, Bytes>>,
    /// The file of the mask beside it.
    beside: Option<Box<GeoTiff>>,
}

impl GeoTiff {
    /// Reads the head of a file.
    ///
    /// # Errors
    /// If it is not TIFF, contradicts itself, passes a limit, or cannot be read.
    pub fn open(source: Arc<dyn ByteSource>, limits: &RasterLimits) -> Result<GeoTiff, RasterError> {
        let name = source.name().to_owned();
        GeoTiff::opened(source, limits).map_err(|error| error.of(&name))
    }

    fn opened(source: Arc<dyn ByteSource>, limits: &RasterLimits) -> Result<GeoTiff, RasterError> {
        let mut file = GeoTiff::alone(source, limits)?;
        if file.head.mask.is_none()
            && file.looks_beside()
            && let Some(beside) = file.bytes.source.beside(SidecarName::Added("msk"))?
        {
            let mask = GeoTiff::alone(beside.clone(), limits).map_err(|error| error.of(beside.name()))?;
            let size = (mask.head.width, mask.head.height);
            if size != (file.head.width, file.head.height) || mask.head.sample != SampleType::U8 {
                let message = format!("the mask has {} x {} pixels of {}", size.0, size.1, mask.head.sample);
                return Err(RasterError::header(message).of(beside.name()));
            }
            file.head.mask = Some(MaskKind::Beside);
            file.beside = Some(Box::new(mask));
        }
        Ok(file)
    }

    /// Whether files beside it count.
    fn looks_beside(&self) -> bool {
        self.bytes.source.looks_beside_cogs() || !self.head.is_complete_cog()
    }

    /// Without a mask beside it.
    fn alone(source: Arc<dyn ByteSource>, limits: &RasterLimits) -> Result<GeoTiff, RasterError> {
        let bytes = HeadBytes::new(source)?;
        let mut chain = directory::chain(&bytes, limits)?;
        let mut warnings = std::mem::take(&mut chain.warnings);
        let pictures = describe::pictures(&bytes, &chain, limits, &mut warnings)?;
        let head = describe::head(&bytes, &chain, &pictures, limits, warnings)?;
        let cache = BlockCache::new(limits.cache_len_max);
        Ok(GeoTiff {
            bytes,
            limits: limits.clone(),
            head,
            pictures,
            cache,
            packed: Mutex::default(),
            beside: None,
        })
    }

    /// What it says of itself.
    #[must_use]
    pub fn head(&self) -> &RasterHead {
        &self.head
    }

    /// Where its bytes come from.
    #[must_use]
    pub fn source(&self) -> &Arc<dyn ByteSource> {
        &self.bytes.source
    }

    /// Whether the bits of its bytes are turned round (FillOrder 2).
    pub(crate) fn has_reversed_bits(&self) -> bool {
        self.pictures.all.first().is_some_and(|picture| picture.form.reversed)
    }

    fn picture(&self, at: usize) -> Result<&Picture, RasterError> {
        let message =
            || RasterError::invalid(format!("there is no resolution {at}")).of(self.bytes.source.name());
        self.pictures.all.get(at).ok_or_else(message)
    }

    fn level(&self, level: usize) -> Result<&Picture, RasterError> {
        self.picture(if level < self.pictures.levels { level } else { usize::MAX })
    }

    /// How many blocks a resolution has, of all planes.
    ///
    /// # Errors
    /// If there is no such resolution.
    pub fn blocks(&self, level: usize) -> Result<u64, RasterError> {
        Ok(self.level(level)?.blocks())
    }

    /// Where the packed bytes of a block are ([`crate::BlockLayout::index`]); nothing if it is not in
    /// the file.
    ///
    /// # Errors
    /// If its place cannot be read, or passes a limit.
    pub fn block_place(&self, level: usize, index: u64) -> Result<Option<Range<u64>>, RasterError> {
        self.level(level)?
            .place(&self.bytes, &self.limits, index)
            .map_err(|error| error.of(self.bytes.source.name()))
    }

    /// The packed bytes of a block; nothing if it is not in the file. Blocks of JPEG may need
    /// tables from elsewhere in the file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn packed_block(&self, level: usize, index: u64) -> Result<Option<Bytes>, RasterError> {
        let Some(place) = self.block_place(level, index)? else { return Ok(None) };
        let ahead = self.packed.lock().unwrap_or_else(PoisonError::into_inner).remove(&place.start);
        if let Some(packed) = ahead.filter(|packed| packed.len() as u64 == place.end - place.start) {
            return Ok(Some(packed));
        }
        // By ranges, because a remote source knows how to check a block.
        Ok(self.bytes.source.read_ranges(&[place])?.pop())
    }

    /// The values of a packed block of this file.
    ///
    /// # Errors
    /// If it cannot be unpacked to its exact size.
    pub fn unpack_block(&self, level: usize, index: u64, packed: &Bytes) -> Result<SampleData, RasterError> {
        let place = self.block_place(level, index)?.map_or(0, |place| place.start);
        let data = self.level(level)?.unpack(index, packed, place);
        data.map_err(|error| error.of(self.bytes.source.name()))
    }

    /// How many pictures it has: those of all resolutions, then their masks.
    pub(crate) fn pictures(&self) -> usize {
        self.pictures.all.len()
    }

    /// The file of the mask beside it.
    pub(crate) fn mask_beside(&self) -> Option<&GeoTiff> {
        self.beside.as_deref()
    }

    /// How many blocks a picture has, of all planes.
    pub(crate) fn blocks_of(&self, picture: usize) -> Result<u64, RasterError> {
        Ok(self.picture(picture)?.blocks())
    }

    /// Where a block of a picture is; nothing if it is not in the file.
    pub(crate) fn place_of(&self, picture: usize, index: u64) -> Result<Option<Range<u64>>, RasterError> {
        self.picture(picture)?.place(&self.bytes, &self.limits, index)
    }

    /// Reads and unpacks a block of a picture.
    pub(crate) fn check_block(
        &self,
        picture: usize,
        index: u64,
        place: &Range<u64>,
    ) -> Result<(), RasterError> {
        let packed = self.bytes.source.read_at(place.start, (place.end - place.start) as usize)?;
        self.picture(picture)?.unpack(index, &packed, place.start).map(|_| ())
    }

    /// The values of a block as they lie in the file: full blocks, of a strip the rows that it has;
    /// values of a pixel side by side unless bands are separate. Nothing if it is not in the file.
    ///
    /// # Errors
    /// If it cannot be read or unpacked to its exact size.
    pub fn block(&self, level: usize, index: u64) -> Result<Option<Arc<SampleData>>, RasterError> {
        let Some(place) = self.block_place(level, index)? else { return Ok(None) };
        let key = self.key(level, index, &place)?;
        if let Some(block) = self.cache.get(&key) {
            return Ok(Some(block));
        }
        let Some(packed) = self.packed_block(level, index)? else { return Ok(None) };
        let block = Arc::new(self.unpack_block(level, index, &packed)?);
        self.cache.put(key, &block);
        Ok(Some(block))
    }

    /// A block of a picture as the cache knows it.
    fn key(&self, picture: usize, index: u64, place: &Range<u64>) -> Result<BlockKey, RasterError> {
        let rows = self.picture(picture)?.block_rows(index).map_or(0, |(_, rows)| rows);
        Ok(BlockKey { picture, place: place.clone(), rows })
    }
}
