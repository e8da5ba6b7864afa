//! Daily use: one exit code for one thing, and hints that can be pasted.

mod down;
mod hints;
mod places;

use crate::common::running::Ran;
use crate::common::workdir::Workdir;

const POLICY: &str =
    "  retry_policy: { max_attempts: 1, base_delay: 10ms, retryable_status_codes: [429, 503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
";

/// A directory with three addresses.
fn addresses() -> Workdir {
    let dir = Workdir::new();
    dir.write("in.csv", "id,address\n1,Ring 1\n2,Ring 2\n3,Ring 3\n");
    dir
}

fn run(dir: &Workdir, args: &[&str]) -> Ran {
    dir.command(args).output().unwrap().into()
}
