//! `tidegate deploy`: writes the files for monitoring, generated from the table of metrics.

use std::io;
use std::path::PathBuf;

use crate::deploy;
use crate::exit::Exit;
use crate::out;

/// Write a dashboard, alert rules, systemd units, a cron file and Kubernetes manifests
///
/// The dashboard and the rules are generated from the metrics of this version, so that every panel
/// refers to an existing metric. The rules use the default thresholds of `alerts` in the manifest.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate deploy -o deploy
  tidegate deploy --check -o deploy
  tidegate deploy --print prometheus/tidegate.rules.yml | promtool check rules /dev/stdin")]
pub(crate) struct Args {
    /// Output directory
    #[arg(short, long, value_name = "DIR", required_unless_present = "print")]
    output: Option<PathBuf>,

    /// Write nothing; list the files that differ, and exit with 1 if there are any
    #[arg(long, requires = "output")]
    check: bool,

    /// Print one of the files to standard output
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    print: Option<String>,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let files = deploy::files();
    if let Some(name) = &args.print {
        let Some((_, text)) = files.iter().find(|(path, _)| path == name) else {
            let names: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
            out::say(&format!("tidegate: unknown file {name}; expected one of {}", names.join(", ")));
            return Ok(Exit::Usage);
        };
        out::data(text)?;
        return Ok(Exit::Done);
    }
    let Some(dir) = &args.output else { return Ok(Exit::Usage) };
    let mut differ = false;
    for (name, text) in files {
        let path = dir.join(name);
        let same = std::fs::read_to_string(&path).is_ok_and(|old| old == text);
        if args.check {
            differ |= !same;
            if !same {
                out::say(&format!("{} differs", path.display()));
            }
            continue;
        }
        let made =
            path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&path, text));
        if let Err(e) = made {
            out::say(&format!("tidegate: {}: {e}", path.display()));
            return Ok(Exit::Failure);
        }
        out::say(&path.display().to_string());
    }
    Ok(if differ { Exit::Failure } else { Exit::Done })
}
