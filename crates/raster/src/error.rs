//! Why a raster could not be read or written.
//!
//! The cause is a value and not a text, because what follows differs: a transient failure is tried
//! later, a corrupt header may be repaired, a file that changed is read from the start, and a file
//! that is too large is refused for good.

use std::fmt;

use tidegate_core::Code;

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RasterCause {
    /// The source did not answer, throttled, or answered wrongly; later it may. With the code of the taxonomy.
    Transient(Code),
    /// The source refused for good, with the code of the taxonomy.
    Refused(Code),
    /// Reading or writing a local file failed.
    Io,
    /// The disk takes no more: it is full, read-only, or a limit of the file system or the process is
    /// reached. No raster is to blame.
    Disk,
    /// The source is not the one that was opened: its size, time or ETag is another.
    Changed,
    /// The source ends before the bytes that its header promises.
    Short,
    /// These are not the bytes of a TIFF file.
    NotTiff,
    /// It is TIFF, but of a kind that is not read.
    Unsupported,
    /// The header contradicts itself.
    CorruptHeader,
    /// A block does not unpack to its pixels.
    CorruptBlock,
    /// A limit would be passed.
    TooLarge,
    /// What the caller asks for does not fit the raster.
    Invalid,
    /// The caller asked to stop.
    Stopped,
}

/// A failure, with its cause and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RasterError {
    /// The kind of failure.
    pub cause: RasterCause,
    /// What happened, in one sentence without a full stop.
    pub message: String,
    /// The byte of the source at which it shows, where one is known.
    pub offset: Option<u64>,
    /// The source, where it is known.
    pub source: Option<String>,
}

impl RasterError {
    /// A failure of this kind.
    #[must_use]
    pub fn new(cause: RasterCause, message: impl Into<String>) -> RasterError {
        RasterError { cause, message: message.into(), offset: None, source: None }
    }

    /// A header that contradicts itself.
    #[must_use]
    pub fn header(message: impl Into<String>) -> RasterError {
        RasterError::new(RasterCause::CorruptHeader, message)
    }

    /// A block that does not unpack.
    #[must_use]
    pub fn block(message: impl Into<String>) -> RasterError {
        RasterError::new(RasterCause::CorruptBlock, message)
    }

    /// A kind of raster that is not read.
    #[must_use]
    pub fn unsupported(message: impl Into<String>) -> RasterError {
        RasterError::new(RasterCause::Unsupported, message)
    }

    /// A limit that would be passed.
    #[must_use]
    pub fn too_large(message: impl Into<String>) -> RasterError {
        RasterError::new(RasterCause::TooLarge, message)
    }

    /// A request that does not fit the raster.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> RasterError {
        RasterError::new(RasterCause::Invalid, message)
    }

    /// The same failure, at this byte.
    #[must_use]
    pub fn at(mut self, offset: u64) -> RasterError {
        self.offset.get_or_insert(offset);
        self
    }

    /// The same failure, of this source.
    #[must_use]
    pub fn of(mut self, source: &str) -> RasterError {
        self.source.get_or_insert_with(|| source.to_owned());
        self
    }

    /// The same failure, with words in front of its message.
    #[must_use]
    pub fn under(mut self, place: impl fmt::Display) -> RasterError {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Whether a later attempt may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.cause, RasterCause::Transient(_) | RasterCause::Changed)
    }

    /// The code of the taxonomy.
    #[must_use]
    pub fn code(&self) -> Code {
        match self.cause {
            RasterCause::Transient(code) | RasterCause::Refused(code) => code,
            RasterCause::Io | RasterCause::Disk | RasterCause::Invalid | RasterCause::Stopped => {
                Code::UNKNOWN
            }
            RasterCause::Changed => Code::CONFLICT,
            RasterCause::Short => Code::TRUNCATED_BODY,
            RasterCause::NotTiff | RasterCause::CorruptHeader => Code::CORRUPTED_HEADER,
            RasterCause::CorruptBlock => Code::CORRUPTED_BLOCK,
            RasterCause::Unsupported => Code::UNSUPPORTED_RASTER,
            RasterCause::TooLarge => Code::PAYLOAD_TOO_LARGE,
        }
    }
}

impl fmt::Display for RasterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(f, "{source}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        Ok(())
    }
}

impl std::error::Error for RasterError {}

impl From<std::io::Error> for RasterError {
    fn from(error: std::io::Error) -> RasterError {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let cause = match error.kind() {
            StorageFull | QuotaExceeded | ReadOnlyFilesystem | FileTooLarge => RasterCause::Disk,
            _ => RasterCause::Io,
        };
        RasterError::new(cause, error.to_string())
    }
}
