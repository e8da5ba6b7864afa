//! Where tiles go: an MBTiles file, a PMTiles file, or a directory `z/x/y.ext`. All have a book in SQLite that says
//! of each tile that was asked for what became of it, with its length and its SHA-256.
//!
//! A tile is in the book only when it is durable: in MBTiles in the same transaction, in a directory
//! after its file and the directory of the file are synced. So a fetch that was cut off goes on with
//! what is not in the book. PMTiles cannot be added to: the tiles are collected in an MBTiles file
//! beside it (`.part`), and it is written from that when all are there.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};
use tidegate_core::content::ContentKind;
use tidegate_core::hex::hex;
use tidegate_geo::tile::TileId;

use super::judge;
use super::pmtiles::{self, PmTile};
use crate::durable;

/// The box of the grid, in degrees.
const WORLD: [f64; 4] = [-180.0, -85.051_128_7, 180.0, 85.051_128_7];

/// What became of a tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TileEnd {
    /// The tile.
    Bytes {
        /// What it is, by its bytes.
        kind: ContentKind,
        /// The bytes.
        data: Vec<u8>,
    },
    /// The service has none here.
    Nothing,
}

/// The tiles of one output.
pub struct TileStore {
    book: Connection,
    /// The directory and the extension, if it is no MBTiles file.
    files: Option<(PathBuf, String)>,
    /// Whether the output is PMTiles.
    is_archive: bool,
    extension: String,
    place: PathBuf,
}

/// Why an output cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TileStoreError {
    /// Another process writes it.
    Locked(String),
    /// It cannot be opened, or holds something else.
    Failed(String),
}

impl From<String> for TileStoreError {
    fn from(what: String) -> TileStoreError {
        TileStoreError::Failed(what)
    }
}

/// What the book says of the tiles of a cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TileCounts {
    /// Tiles that are there.
    pub tiles: u64,
    /// Places without a tile.
    pub nothing: u64,
    /// The length of the tiles.
    pub bytes: u64,
}

impl TileStore {
    /// Opens or creates the output. A name that ends in `.mbtiles` is a file, any other a directory.
    ///
    /// # Errors
    /// When it cannot be opened, or holds the tiles of another URL.
    pub fn open(place: &Path, template: &str, extension: &str) -> Result<TileStore, TileStoreError> {
        let is = |name: &str| place.extension().is_some_and(|end| end.eq_ignore_ascii_case(name));
        let (is_archive, is_file) = (is("pmtiles"), is("mbtiles") || is("pmtiles"));
        let fail = |what: &dyn std::fmt::Display| format!("{}: {what}", place.display());
        let book = TileStore::book(place);
        if let Some(folder) = book.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|e| fail(&e))?;
        }
        let db = Connection::open(&book).map_err(|e| fail(&e))?;
        prepare(&db).map_err(|e| match e.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseBusy) => {
                TileStoreError::Locked(fail(&"another fetch writes it"))
            }
            _ => TileStoreError::Failed(fail(&e)),
        })?;
        let known: Option<String> = db
            .query_row("SELECT value FROM metadata WHERE name = 'tidegate_url'", [], |row| row.get(0))
            .optional()
            .map_err(|e| fail(&e))?;
        match known {
            Some(known) if known != template => {
                return Err(fail(&format!("holds the tiles of {known}; choose another output")).into());
            }
            Some(_) => {}
            None => {
                let name =
                    place.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                for (key, value) in
                    [("name", name.as_str()), ("format", extension), ("tidegate_url", template)]
                {
                    db.execute("INSERT INTO metadata VALUES (?1, ?2)", params![key, value])
                        .map_err(|e| fail(&e))?;
                }
            }
        }
        let files = (!is_file).then(|| (place.to_owned(), extension.to_owned()));
        let extension = extension.to_owned();
        Ok(TileStore { book: db, files, is_archive, extension, place: place.to_owned() })
    }

    /// The file that holds the book of an output.
    #[must_use]
    pub fn book(place: &Path) -> PathBuf {
        match place.extension().map(|end| end.to_string_lossy().to_ascii_lowercase()).as_deref() {
            Some("mbtiles") => place.to_owned(),
            Some("pmtiles") => place.with_extension("pmtiles.part"),
            _ => place.join("tiles.db"),
        }
    }

    /// All tiles are there: writes what can only be written then.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(&self) -> Result<(), String> {
        let format = self.format().map_err(|e| self.fail(&e))?;
        if !self.is_archive {
            return Ok(());
        }
        let write = || -> Result<(), Box<dyn std::error::Error>> {
            let mut tiles = Vec::new();
            let mut list = self
                .book
                .prepare("SELECT z, x, row, sha256, bytes FROM tidegate_tile WHERE sha256 NOT NULL")?;
            let mut rows = list.query([])?;
            while let Some(row) = rows.next()? {
                let tile = TileId::from_south(row.get(0)?, row.get(1)?, row.get(2)?);
                tiles.push(PmTile { tile, sha256: row.get(3)?, bytes: row.get(4)? });
            }
            let new = self.place.with_extension("pmtiles.new");
            let mut file = io::BufWriter::new(fs::File::create(&new)?);
            let mut find = self.book.prepare(
                "SELECT tile_data FROM tiles WHERE zoom_level = ?1 AND tile_column = ?2 AND tile_row = ?3",
            )?;
            let metadata =
                serde_json::json!({ "name": self.place.file_stem().map(|name| name.to_string_lossy()) });
            let about = (format.as_str(), WORLD, &metadata);
            pmtiles::write(&mut file, tiles, about, &mut |tile| {
                find.query_row(params![tile.z, tile.x, tile.row_from_south()], |row| row.get(0))
                    .map_err(io::Error::other)
            })?;
            file.into_inner()?.sync_all()?;
            Ok(durable::rename(&new, &self.place)?)
        };
        write().map_err(|e| self.fail(&e))
    }

    /// The format of the tiles by their bytes, of several the most frequent one; written down as that of the
    /// output. An address may end in `.png` and give JPEG.
    fn format(&self) -> rusqlite::Result<String> {
        let found: Option<String> = self
            .book
            .query_row(
                "SELECT format FROM tidegate_tile WHERE format NOT NULL GROUP BY format ORDER BY count(*) DESC LIMIT 1",
                [],
                |row| row.get(0),
            )
            .optional()?;
        let Some(found) = found else { return Ok(self.extension.clone()) };
        self.book
            .execute("UPDATE metadata SET value = ?1 WHERE name = 'format' AND value <> ?1", [&found])?;
        Ok(found)
    }

    /// Whether a tile is there, whole, or known to be none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn has(&self, tile: TileId) -> Result<bool, String> {
        let row: Option<(Option<String>, Option<Vec<u8>>)> = self
            .book
            .prepare_cached(
                "SELECT book.sha256, tiles.tile_data FROM tidegate_tile AS book LEFT JOIN tiles
                 ON tiles.zoom_level = book.z AND tiles.tile_column = book.x AND tiles.tile_row = book.row
                 WHERE book.z = ?1 AND book.x = ?2 AND book.row = ?3",
            )
            .and_then(|mut find| {
                let key = params![tile.z, tile.x, tile.row_from_south()];
                find.query_row(key, |row| Ok((row.get(0)?, row.get(1)?))).optional()
            })
            .map_err(|e| self.fail(&e))?;
        let Some((digest, data)) = row else { return Ok(false) };
        let Some(digest) = digest else { return Ok(true) };
        let data = match (&self.files, data) {
            (None, data) => data,
            (Some(_), _) => match fs::read(self.file(tile)) {
                Ok(data) => Some(data),
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                Err(e) => return Err(self.fail(&e)),
            },
        };
        // What was damaged since is asked for again.
        Ok(data.is_some_and(|data| hex(&Sha256::digest(&data)) == digest))
    }

    /// Writes tiles durably.
    ///
    /// # Errors
    /// When that fails; then none of them is in the book.
    pub fn put(&mut self, tiles: &[(TileId, TileEnd)]) -> Result<(), String> {
        let mut folders = BTreeSet::new();
        if self.files.is_some() {
            for (tile, end) in tiles {
                if let TileEnd::Bytes { data, .. } = end {
                    let path = self.file(*tile);
                    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
                    fs::create_dir_all(&folder).map_err(|e| self.fail(&e))?;
                    write(&path, data).map_err(|e| self.fail(&e))?;
                    folders.insert(folder);
                }
            }
            for folder in folders.iter().flat_map(|folder| folder.ancestors().take(3)) {
                // The names in it.
                durable::sync_parent(&folder.join("tile")).map_err(|e| self.fail(&e))?;
            }
        }
        let in_file = self.files.is_none();
        let entered = (|| {
            let write = self.book.unchecked_transaction()?;
            for (tile, end) in tiles {
                let (data, format) = match end {
                    TileEnd::Bytes { kind, data } => (Some(data), Some(judge::format(*kind))),
                    TileEnd::Nothing => (None, None),
                };
                let row = tile.row_from_south();
                write
                    .prepare_cached(
                        "INSERT OR REPLACE INTO tidegate_tile (z, x, row, sha256, bytes, format)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    )?
                    .execute(params![
                        tile.z,
                        tile.x,
                        row,
                        data.map(|data| hex(&Sha256::digest(data))),
                        data.map(|data| data.len() as i64),
                        format
                    ])?;
                if let Some(data) = data.filter(|_| in_file) {
                    write
                        .prepare_cached("INSERT OR REPLACE INTO tiles VALUES (?1, ?2, ?3, ?4)")?
                        .execute(params![tile.z, tile.x, row, data])?;
                }
            }
            write.commit()
        })();
        entered.map_err(|e: rusqlite::Error| self.fail(&e))
    }

    /// Counts what the output holds of a zoom level between these columns and rows. Asked of the
    /// output itself, not of our counters.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn count(&self, tiles: impl Iterator<Item = TileId>) -> Result<TileCounts, String> {
        let mut counts = TileCounts::default();
        let mut find = self
            .book
            .prepare("SELECT bytes FROM tidegate_tile WHERE z = ?1 AND x = ?2 AND row = ?3")
            .map_err(|e| self.fail(&e))?;
        for tile in tiles {
            let bytes: Option<Option<i64>> = find
                .query_row(params![tile.z, tile.x, tile.row_from_south()], |row| row.get(0))
                .optional()
                .map_err(|e| self.fail(&e))?;
            match bytes {
                Some(Some(bytes)) => {
                    counts.tiles += 1;
                    counts.bytes += bytes.unsigned_abs();
                }
                Some(None) => counts.nothing += 1,
                None => {}
            }
        }
        Ok(counts)
    }

    fn file(&self, tile: TileId) -> PathBuf {
        let (folder, extension) = self.files.clone().unwrap_or_default();
        folder.join(tile.z.to_string()).join(tile.x.to_string()).join(format!("{}.{extension}", tile.y))
    }

    fn fail(&self, what: &dyn std::fmt::Display) -> String {
        format!("{}: {what}", self.place.display())
    }
}

/// Writes a file that is never there in part.
fn write(path: &Path, data: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = fs::File::create(&new)?;
    file.write_all(data)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

fn prepare(db: &Connection) -> rusqlite::Result<()> {
    // Two fetches into one output would ask for each tile twice.
    db.pragma_update(None, "locking_mode", "exclusive")?;
    // One file, complete at any time: no second file beside it that one could forget to copy.
    db.pragma_update(None, "journal_mode", "delete")?;
    db.pragma_update(None, "synchronous", "full")?;
    db.execute_batch(
        // Exclusive at once, and kept: reading alone would let another one in.
        "BEGIN EXCLUSIVE;
         CREATE TABLE IF NOT EXISTS metadata (name TEXT, value TEXT);
         CREATE TABLE IF NOT EXISTS tiles
             (zoom_level INTEGER, tile_column INTEGER, tile_row INTEGER, tile_data BLOB);
         CREATE UNIQUE INDEX IF NOT EXISTS tile_index ON tiles (zoom_level, tile_column, tile_row);
         CREATE TABLE IF NOT EXISTS tidegate_tile
             (z INTEGER, x INTEGER, row INTEGER, sha256 TEXT, bytes INTEGER, PRIMARY KEY (z, x, row)) WITHOUT ROWID;
         COMMIT;",
    )?;
    // The book of an older version does not know the formats of its tiles.
    let column = "SELECT count(*) FROM pragma_table_info('tidegate_tile') WHERE name = 'format'";
    if db.query_row(column, [], |row| row.get::<_, i64>(0))? == 0 {
        db.execute_batch("ALTER TABLE tidegate_tile ADD COLUMN format TEXT")?;
    }
    Ok(())
}
