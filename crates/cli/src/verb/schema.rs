//! `tidegate schema`: the JSON Schema of the manifest, for editors and other tools.

use std::io;

use tidegate_pipeline::manifest;

use crate::exit::Exit;
use crate::out;

/// Print the JSON Schema of the manifest
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate schema > tidegate.schema.json
  Start the manifest with this line, and an editor with a YAML language server validates and
  completes it as you type:
  # yaml-language-server: $schema=tidegate.schema.json")]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> io::Result<Exit> {
    out::data(&format!("{:#}\n", manifest::schema()))?;
    Ok(Exit::Done)
}
