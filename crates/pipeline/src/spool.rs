//! A pipe that can be read again: what has been read once is kept in a file without a name.
//!
//! A quote that is never closed is found at the end of the input, and the rows behind it are
//! read again from there. A file can go back; standard input cannot, so it is kept. Reading does
//! not wait for its end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use tidegate_geo::format::csv::Rewind;

/// An input that is read once, with its copy.
#[derive(Debug)]
pub struct Spool<R> {
    from: R,
    copy: File,
    path: Option<PathBuf>,
    at: u64,
    kept: u64,
}

impl<R: Read> Spool<R> {
    /// Keeps the copy in the directory for temporary files.
    ///
    /// # Errors
    /// When no file can be made there.
    pub fn new(from: R) -> io::Result<Spool<R>> {
        let dir = std::env::temp_dir();
        let mut tries = 0u32;
        loop {
            let path = dir.join(format!("tidegate-{}-{tries}.spool", std::process::id()));
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            match options.open(&path) {
                Ok(copy) => {
                    // Where the name can go at once, nothing is left behind by a kill.
                    let path = std::fs::remove_file(&path).is_err().then_some(path);
                    return Ok(Spool { from, copy, path, at: 0, kept: 0 });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < 1000 => tries += 1,
                Err(e) => return Err(e),
            }
        }
    }
}

impl<R: Read> Rewind for Spool<R> {
    fn rewind_to(&mut self, offset: u64) -> io::Result<()> {
        self.at = self.copy.seek(SeekFrom::Start(offset.min(self.kept)))?;
        Ok(())
    }
}

impl<R: Read> Read for Spool<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = if self.at < self.kept {
            self.copy.read(buf)?
        } else {
            let n = self.from.read(buf)?;
            self.copy.write_all(buf.get(..n).unwrap_or_default())?;
            self.kept += n as u64;
            n
        };
        self.at += n as u64;
        Ok(n)
    }
}

impl<R> Drop for Spool<R> {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_can_be_read_again() {
        let mut spool = Spool::new(&b"one two three"[..]).unwrap();
        let mut seven = [0; 7];
        spool.read_exact(&mut seven).unwrap();
        assert_eq!(&seven, b"one two");
        spool.rewind_to(4).unwrap();
        let mut rest = String::new();
        spool.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "two three");
        spool.rewind_to(0).unwrap();
        let mut whole = String::new();
        spool.read_to_string(&mut whole).unwrap();
        assert_eq!(whole, "one two three");
    }
}
