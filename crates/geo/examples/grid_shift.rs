//! Shifts positions over a grid: `grid_shift FILE`, positions as `lon lat` lines on standard input.
//! Tells `lon lat` there and, from there, back; `-` outside the grid. For the oracle.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "a tool for the oracle")]

use tidegate_geo::crs::grid::Grid;

fn main() {
    let file = std::env::args().nth(1).expect("a file");
    let grid = Grid::open(file.as_ref()).expect("a grid");
    for line in std::io::stdin().lines() {
        let line = line.expect("text");
        let mut numbers = line.split(' ').map(|number| number.parse::<f64>().expect("a number"));
        let (lon, lat) = (numbers.next().expect("a longitude"), numbers.next().expect("a latitude"));
        let there = grid.forward(lon, lat);
        let back = there.and_then(|(lon, lat)| grid.backward(lon, lat));
        let words = |at: Option<(f64, f64)>| at.map_or("-".into(), |(lon, lat)| format!("{lon} {lat}"));
        println!("{};{}", words(there), words(back));
    }
}
