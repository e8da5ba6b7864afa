//! Runs scenario files and prints their tables.
#![allow(clippy::print_stdout)]
use std::{env, error::Error, fs};

use tidegate_sim::report::{self, table::Style};
use tidegate_sim::scenario::{Options, Scenario};

fn main() -> Result<(), Box<dyn Error>> {
    for path in env::args().skip(1) {
        let scenario = Scenario::parse(&fs::read_to_string(&path)?)?;
        let outcome = scenario.run(&Options::default())?;
        if let Some(page) = env::var_os("PAGE") {
            fs::write(page, report::html(&outcome))?;
        }
        print!("{}", report::table(&outcome, Style::default()));
    }
    Ok(())
}
