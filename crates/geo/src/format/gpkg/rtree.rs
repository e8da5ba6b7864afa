//! Packing an R-tree bottom-up.
//!
//! SQLite stores an R*Tree in three tables: nodes as blobs, the leaf of each row, the parent of each node.
//! Inserting row by row splits and rebalances nodes. With all bounds known and sorted along a Hilbert
//! curve, full nodes give a better tree in a fraction of the time.
//!
//! A node is a 16-bit depth (used in the root only), a 16-bit count, and cells of a 64-bit id and four
//! 32-bit floats, all big-endian. Floats are rounded outwards, so that a box covers its content.

use std::io::{self, Read, Write};
use std::path::Path;

use rusqlite::Connection;

use super::super::hilbert::{BoxEntry, Collector};
use super::super::sort::{self, IN_MEMORY_MAX, Item, Sorter};
use crate::error::Error;

/// Cells per node: SQLite's limit for pages of 4 KiB and two dimensions.
const CELLS_MAX: usize = 51;
const CELL_LEN: usize = 24;
const NODE_LEN: usize = 4 + CELLS_MAX * CELL_LEN;

/// Writes the tree of these boxes into an empty index.
pub(super) fn pack(boxes: Collector, db: &Connection, rtree: &str, near: &Path) -> Result<(), Error> {
    let Some(total) = boxes.total() else { return Ok(()) };
    let count = boxes.len();
    let mut tree = Tree::new(db, rtree, near)?;
    tree.build(boxes.sorted(total, near)?, count)?;
    tree.write_leaves()
}

/// The leaf of a row.
#[derive(Clone, Copy)]
struct Leaf {
    row: i64,
    node: i64,
}

impl Item for Leaf {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.row.to_le_bytes())?;
        out.write_all(&self.node.to_le_bytes())
    }

    fn read(from: &mut impl Read) -> io::Result<Leaf> {
        Ok(Leaf { row: i64::from_le_bytes(sort::bytes(from)?), node: i64::from_le_bytes(sort::bytes(from)?) })
    }
}

struct Tree<'a> {
    node: rusqlite::Statement<'a>,
    parent: rusqlite::Statement<'a>,
    rowid: rusqlite::Statement<'a>,
    next_node: i64,
    /// The leaf of each row. Its table is filled in the order of rows, which appends, instead of the order
    /// of the curve, which searches.
    leaves: Sorter<Leaf>,
    near: &'a Path,
}

impl<'a> Tree<'a> {
    fn new(db: &'a Connection, rtree: &str, near: &'a Path) -> Result<Tree<'a>, Error> {
        let sql = |table: &str, into: &str| -> Result<String, Error> {
            Ok(format!(
                "INSERT OR REPLACE INTO {} {into} VALUES (?1, ?2)",
                super::quote(&format!("{rtree}_{table}"))?
            ))
        };
        Ok(Tree {
            node: db.prepare(&sql("node", "(nodeno, data)")?)?,
            parent: db.prepare(&sql("parent", "(nodeno, parentnode)")?)?,
            rowid: db.prepare(&sql("rowid", "(rowid, nodeno)")?)?,
            next_node: 2,
            leaves: Sorter::new(IN_MEMORY_MAX),
            near,
        })
    }

    /// Builds level by level: full nodes of entries, then of nodes, until one node is left: the root,
    /// number 1.
    fn build(
        &mut self,
        entries: impl Iterator<Item = io::Result<BoxEntry>>,
        count: usize,
    ) -> Result<(), Error> {
        let mut depth = 0u16;
        let mut level: Vec<BoxEntry> = Vec::new();
        let mut node: Vec<BoxEntry> = Vec::with_capacity(CELLS_MAX);
        let is_root = count <= CELLS_MAX;
        for entry in entries {
            node.push(entry?);
            if node.len() == CELLS_MAX && !is_root {
                level.push(self.flush(&node, 0, false)?);
                node.clear();
            }
        }
        if is_root {
            self.flush(&node, 0, true)?;
            return Ok(());
        }
        if !node.is_empty() {
            level.push(self.flush(&node, 0, false)?);
        }
        while level.len() > CELLS_MAX {
            depth += 1;
            level = level
                .chunks(CELLS_MAX)
                .map(|cells| self.flush(cells, depth, false))
                .collect::<Result<_, _>>()?;
        }
        self.flush(&level, depth + 1, true)?;
        Ok(())
    }

    fn write_leaves(self) -> Result<(), Error> {
        let mut rowid = self.rowid;
        // Row ids may be negative.
        for leaf in self.leaves.sorted(|leaf| leaf.row.cast_unsigned() ^ (1 << 63), self.near)? {
            let Leaf { row, node } = leaf?;
            rowid.execute((row, node))?;
        }
        Ok(())
    }

    /// Writes a node and returns its cell for the level above.
    fn flush(&mut self, cells: &[BoxEntry], depth: u16, is_root: bool) -> Result<BoxEntry, Error> {
        let number = if is_root { 1 } else { self.next_node };
        self.next_node += i64::from(!is_root);
        let mut blob = Vec::with_capacity(NODE_LEN);
        blob.extend_from_slice(&(if is_root { depth } else { 0 }).to_be_bytes());
        blob.extend_from_slice(&(cells.len() as u16).to_be_bytes());
        let mut bounds = [f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY, f32::NEG_INFINITY];
        for cell in cells {
            blob.extend_from_slice(&cell.id.to_be_bytes());
            for number in cell.bounds {
                blob.extend_from_slice(&number.to_be_bytes());
            }
            let [min_x, max_x, min_y, max_y] = cell.bounds;
            let [a, b, c, d] = bounds;
            bounds = [a.min(min_x), b.max(max_x), c.min(min_y), d.max(max_y)];
            if depth == 0 {
                self.leaves.push(Leaf { row: cell.id, node: number }, self.near)?;
            } else {
                self.parent.execute((cell.id, number))?;
            }
        }
        blob.resize(NODE_LEN, 0);
        self.node.execute((number, &blob))?;
        Ok(BoxEntry { id: number, bounds })
    }
}
