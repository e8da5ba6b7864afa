//! A small map for a terminal in Braille characters, each two dots wide and four dots high.

use tidegate_geo::Bounds;

use super::sample::Polyline;

const HEIGHT_MAX: usize = 24;

/// Draws lines into at most `width` characters. Degrees of longitude are scaled by the cosine of
/// the latitude in the middle of the map. Empty if there is nothing to draw.
pub(crate) fn map(lines: &[Polyline], bounds: Option<Bounds>, in_degrees: bool, width: usize) -> Vec<String> {
    let Some(bounds) = bounds.filter(|b| b.min_x.is_finite() && b.max_x.is_finite()) else {
        return Vec::new();
    };
    if lines.is_empty() || width == 0 {
        return Vec::new();
    }
    let shrink = if in_degrees {
        f64::midpoint(bounds.min_y, bounds.max_y).clamp(-89.0, 89.0).to_radians().cos().max(0.05)
    } else {
        1.0
    };
    let (wide, high) = ((bounds.max_x - bounds.min_x) * shrink, bounds.max_y - bounds.min_y);
    let mut canvas = Canvas::fitting(wide, high, width);
    let unit = (wide / (canvas.dots_wide() - 1) as f64).max(high / (canvas.dots_high() - 1) as f64);
    let unit = if unit > 0.0 && unit.is_finite() { unit } else { 1.0 };
    let place = |(x, y): (f64, f64)| ((x - bounds.min_x) * shrink / unit, (bounds.max_y - y) / unit);
    for line in lines {
        if let [only] = line.as_slice() {
            canvas.dot(place(*only));
        }
        for (a, b) in line.iter().zip(line.iter().skip(1)) {
            canvas.edge(place(*a), place(*b));
        }
    }
    canvas.rows()
}

struct Canvas {
    /// Width in characters.
    width: usize,
    /// Height in characters.
    height: usize,
    cells: Vec<u8>,
}

impl Canvas {
    /// A canvas of the given width in characters at most; the height follows from the aspect ratio.
    fn fitting(wide: f64, high: f64, width: usize) -> Canvas {
        let ratio = if wide > 0.0 { high / wide } else { f64::INFINITY };
        let height = (width as f64 * 2.0 * ratio / 4.0).ceil();
        let (width, height) = if height <= HEIGHT_MAX as f64 {
            (width, (height as usize).max(1))
        } else {
            let wanted = (HEIGHT_MAX as f64 * 4.0 / ratio / 2.0).ceil();
            ((wanted as usize).clamp(1, width), HEIGHT_MAX)
        };
        Canvas { width, height, cells: vec![0; width * height] }
    }

    fn dots_wide(&self) -> usize {
        self.width * 2
    }

    fn dots_high(&self) -> usize {
        self.height * 4
    }

    fn dot(&mut self, (x, y): (f64, f64)) {
        // The bits of the dots of a Braille cell, by row and column.
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        let (x, y) = (x.round(), y.round());
        if x < 0.0 || y < 0.0 || x >= self.dots_wide() as f64 || y >= self.dots_high() as f64 {
            return;
        }
        let (x, y) = (x as usize, y as usize);
        if let Some(cell) = self.cells.get_mut(y / 4 * self.width + x / 2) {
            *cell |= BITS[y % 4][x % 2];
        }
    }

    fn edge(&mut self, a: (f64, f64), b: (f64, f64)) {
        let steps = (b.0 - a.0).abs().max((b.1 - a.1).abs()).ceil().clamp(1.0, 10_000.0);
        for step in 0..=steps as u32 {
            let share = f64::from(step) / steps;
            self.dot((a.0 + (b.0 - a.0) * share, a.1 + (b.1 - a.1) * share));
        }
    }

    fn rows(&self) -> Vec<String> {
        let braille = |cell: &u8| char::from_u32(0x2800 + u32::from(*cell)).unwrap_or(' ');
        let rows = self.cells.chunks(self.width);
        rows.map(|row| row.iter().map(braille).collect::<String>().trim_end_matches('\u{2800}').to_owned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_with_a_diagonal() {
        let line = vec![(0.0, 0.0), (10.0, 0.0), (10.0, 10.0), (0.0, 10.0), (0.0, 0.0), (10.0, 10.0)];
        let bounds = Bounds { min_x: 0.0, min_y: 0.0, max_x: 10.0, max_y: 10.0 };
        assert_eq!(map(&[line], Some(bounds), false, 8), ["⡏⠉⠉⠉⠉⠉⡩⢻", "⡇⠀⠀⠀⡠⠊⠀⢸", "⡇⠀⡠⠊⠀⠀⠀⢸", "⣧⣊⣀⣀⣀⣀⣀⣸"]);
    }

    #[test]
    fn a_dot_a_line_and_nothing() {
        let at = |x: f64, y: f64| Bounds { min_x: x, min_y: y, max_x: x, max_y: y };
        assert_eq!(map(&[vec![(5.0, 5.0)]], Some(at(5.0, 5.0)), true, 60).concat(), "⠁");
        let flat = Bounds { min_x: 0.0, min_y: 0.0, max_x: 9.0, max_y: 0.0 };
        assert_eq!(map(&[vec![(0.0, 0.0), (9.0, 0.0)]], Some(flat), false, 4), ["⠉⠉⠉⠉"]);
        let upright = Bounds { min_x: 0.0, min_y: 0.0, max_x: 0.0, max_y: 9.0 };
        assert_eq!(map(&[vec![(0.0, 0.0), (0.0, 9.0)]], Some(upright), false, 4).len(), HEIGHT_MAX);
        assert!(map(&[], None, true, 60).is_empty());
        for wild in [f64::MAX, f64::NAN, f64::INFINITY] {
            let odd = Bounds { min_x: -wild, min_y: 0.0, max_x: wild, max_y: 1.0 };
            let _ = map(&[vec![(wild, 0.0), (0.0, wild)]], Some(odd), true, 60);
        }
    }
}
