//! Packing an R-tree bottom-up.
//!
//! SQLite keeps an R*Tree in three plain tables: nodes as blobs, the leaf of each row, the parent
//! of each node. Inserting row by row splits and rebalances; with all bounds known and sorted
//! along a Hilbert curve, filling each node to the brim gives a better tree in a fraction of the
//! time.
//!
//! A node is a 16-bit depth (only the root's counts), a 16-bit count, and cells of a 64-bit
//! number and four 32-bit floats, all big-endian. Floats are rounded outwards, so that a box never
//! loses what it holds.

use std::io;
use std::path::Path;

use rusqlite::Connection;

use super::super::hilbert::{Collector, Entry};
use crate::error::Error;

/// How many cells a node holds: SQLite's own limit for pages of 4 KiB and two dimensions.
const CELLS_MAX: usize = 51;
const CELL_LEN: usize = 24;
const NODE_LEN: usize = 4 + CELLS_MAX * CELL_LEN;

/// Writes the tree of these boxes into the empty index of this name.
pub(super) fn pack(boxes: Collector, db: &Connection, rtree: &str, near: &Path) -> Result<(), Error> {
    let Some(total) = boxes.total() else { return Ok(()) };
    let count = boxes.len();
    let mut tree = Tree::new(db, rtree)?;
    tree.build(boxes.sorted(total, near)?, count)?;
    tree.write_leaves()
}

struct Tree<'a> {
    node: rusqlite::Statement<'a>,
    parent: rusqlite::Statement<'a>,
    rowid: rusqlite::Statement<'a>,
    next_node: i64,
    /// The leaf of each row, by its number; rows without a box have leaf 0. The table is filled
    /// from it in the order of rows, which appends, and not in that of the curve, which searches.
    leaf_of: Vec<u32>,
}

impl<'a> Tree<'a> {
    fn new(db: &'a Connection, rtree: &str) -> Result<Tree<'a>, Error> {
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
            leaf_of: Vec::new(),
        })
    }

    /// Level by level: full nodes of entries, then of those nodes, until one node holds all. That
    /// one is the root, number 1.
    fn build(&mut self, entries: impl Iterator<Item = io::Result<Entry>>, count: usize) -> Result<(), Error> {
        let mut depth = 0u16;
        let mut level: Vec<Entry> = Vec::new();
        let mut node: Vec<Entry> = Vec::with_capacity(CELLS_MAX);
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

    fn remember_leaf(&mut self, row: i64, leaf: i64) {
        let (Ok(row), Ok(leaf)) = (usize::try_from(row), u32::try_from(leaf)) else { return };
        if self.leaf_of.len() <= row {
            self.leaf_of.resize(row + 1, 0);
        }
        if let Some(slot) = self.leaf_of.get_mut(row) {
            *slot = leaf;
        }
    }

    fn write_leaves(&mut self) -> Result<(), Error> {
        for (row, leaf) in self.leaf_of.iter().enumerate().filter(|(_, leaf)| **leaf != 0) {
            self.rowid.execute((row as i64, i64::from(*leaf)))?;
        }
        Ok(())
    }

    /// Writes a node and returns the cell that stands for it one level up.
    fn flush(&mut self, cells: &[Entry], depth: u16, is_root: bool) -> Result<Entry, Error> {
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
                self.remember_leaf(cell.id, number);
            } else {
                self.parent.execute((cell.id, number))?;
            }
        }
        blob.resize(NODE_LEN, 0);
        self.node.execute((number, &blob))?;
        Ok(Entry { id: number, bounds })
    }
}
