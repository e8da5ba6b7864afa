//! `tidegate schema`: the JSON Schemas of the manifest and of geotasks, for editors and other tools.

use std::io;

use tidegate_pipeline::manifest;

use crate::exit::Exit;
use crate::out;

/// Print the JSON Schema of the manifest, or of the messages of a queue
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate schema > tidegate.schema.json
  tidegate schema geotask
  Start the manifest with this line, and an editor with a YAML language server validates and
  completes it as you type:
  # yaml-language-server: $schema=tidegate.schema.json")]
pub(crate) struct Args {
    /// What to describe
    #[arg(value_enum, value_name = "WHAT", default_value_t = SchemaOf::Manifest)]
    what: SchemaOf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SchemaOf {
    /// The manifest of a pipeline
    Manifest,
    /// A message of a queue
    Geotask,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    match args.what {
        SchemaOf::Manifest => out::data(&format!("{:#}\n", manifest::schema()))?,
        SchemaOf::Geotask => out::data(tidegate_queue::GEOTASK_SCHEMA)?,
    }
    Ok(Exit::Done)
}
