//! An expression over rows of numbers. NaN is null.

use tidegate_geo::filter::{Binary, Expr, Function, Literal, Unary, parse};

use crate::error::RasterError;

/// An expression whose names are places of bands.
#[derive(Debug)]
pub(super) struct Formula(FormulaNode);

#[derive(Debug)]
enum FormulaNode {
    Band(usize),
    Number(f64),
    Unary(Unary, Box<FormulaNode>),
    Binary(Binary, Box<FormulaNode>, Box<FormulaNode>),
    In(Box<FormulaNode>, Vec<FormulaNode>),
    Abs(Box<FormulaNode>),
    Coalesce(Vec<FormulaNode>),
}

impl Formula {
    /// The formula of a text, over bands of these names.
    pub(super) fn new(text: &str, names: &[&str]) -> Result<Formula, RasterError> {
        let expr = parse(text).map_err(|fault| RasterError::invalid(format!("{text:?}: {fault}")))?;
        bind(&expr, names).map(Formula).map_err(|why| RasterError::invalid(format!("{text:?}: {why}")))
    }

    /// Whether it uses this band.
    pub(super) fn uses(&self, band: usize) -> bool {
        uses(&self.0, band)
    }

    /// Its values in a row of this width; `band` gives the values of a band in the row.
    pub(super) fn row<'a>(&self, band: &impl Fn(usize) -> &'a [f64], width: usize) -> Vec<f64> {
        row(&self.0, band, width)
    }
}

fn uses(node: &FormulaNode, band: usize) -> bool {
    match node {
        FormulaNode::Band(at) => *at == band,
        FormulaNode::Number(_) => false,
        FormulaNode::Unary(_, inner) | FormulaNode::Abs(inner) => uses(inner, band),
        FormulaNode::Binary(_, left, right) => uses(left, band) || uses(right, band),
        FormulaNode::In(left, list) => uses(left, band) || list.iter().any(|node| uses(node, band)),
        FormulaNode::Coalesce(list) => list.iter().any(|node| uses(node, band)),
    }
}

fn bind(expr: &Expr, names: &[&str]) -> Result<FormulaNode, String> {
    let all = |list: &[Expr]| list.iter().map(|item| bind(item, names)).collect::<Result<Vec<_>, _>>();
    Ok(match expr {
        Expr::Field(name, at) => {
            let found = names.iter().position(|known| known.eq_ignore_ascii_case(name));
            let known = || names.iter().take(30).copied().collect::<Vec<_>>().join(", ");
            FormulaNode::Band(found.ok_or_else(|| {
                format!("no band {name:?} at character {}; expected one of {}", at + 1, known())
            })?)
        }
        Expr::Own(_) => return Err("$shape, $id and $record are of features, not of pixels".into()),
        Expr::Literal(literal) => FormulaNode::Number(match literal {
            Literal::Null => f64::NAN,
            Literal::Bool(truth) => f64::from(u8::from(*truth)),
            Literal::Int(number) => *number as f64,
            Literal::Real(number) => *number,
            Literal::Text(text) => return Err(format!("'{text}' is text, and pixels are numbers")),
        }),
        Expr::Unary(operator, inner) => FormulaNode::Unary(*operator, Box::new(bind(inner, names)?)),
        Expr::Binary(Binary::Like | Binary::AnyLike, _, _) => {
            return Err("like compares text, and pixels are numbers".into());
        }
        Expr::Binary(operator, left, right) => {
            FormulaNode::Binary(*operator, Box::new(bind(left, names)?), Box::new(bind(right, names)?))
        }
        Expr::In(left, list) => FormulaNode::In(Box::new(bind(left, names)?), all(list)?),
        Expr::Call(Function::Coalesce, list) => FormulaNode::Coalesce(all(list)?),
        Expr::Call(Function::Abs, list) => match list.as_slice() {
            [inner] => FormulaNode::Abs(Box::new(bind(inner, names)?)),
            _ => return Err("abs takes one value".into()),
        },
        Expr::Call(..) => return Err("of functions, only abs and coalesce work on pixels".into()),
    })
}

fn truth(is: bool) -> f64 {
    f64::from(u8::from(is))
}

fn row<'a>(node: &FormulaNode, band: &impl Fn(usize) -> &'a [f64], width: usize) -> Vec<f64> {
    let one = |inner: &FormulaNode, change: &dyn Fn(f64) -> f64| {
        let mut values = row(inner, band, width);
        values.iter_mut().for_each(|value| *value = change(*value));
        values
    };
    match node {
        FormulaNode::Band(at) => band(*at).to_vec(),
        FormulaNode::Number(number) => vec![*number; width],
        FormulaNode::Unary(Unary::Minus, inner) => one(inner, &|x| -x),
        FormulaNode::Unary(Unary::Not, inner) => {
            one(inner, &|x| if x.is_nan() { x } else { truth(x == 0.0) })
        }
        FormulaNode::Unary(Unary::IsNull, inner) => one(inner, &|x| truth(x.is_nan())),
        FormulaNode::Abs(inner) => one(inner, &f64::abs),
        FormulaNode::Binary(operator, left, right) => {
            let (mut left, right) = (row(left, band, width), row(right, band, width));
            pairs(*operator, &mut left, &right);
            left
        }
        FormulaNode::In(left, list) => {
            let left = row(left, band, width);
            let mut found = vec![0.0; width];
            for item in list {
                let mut same = left.clone();
                pairs(Binary::Equal, &mut same, &row(item, band, width));
                pairs(Binary::Or, &mut found, &same);
            }
            found
        }
        FormulaNode::Coalesce(list) => {
            let mut values = vec![f64::NAN; width];
            for item in list {
                for (value, other) in values.iter_mut().zip(row(item, band, width)) {
                    *value = if value.is_nan() { other } else { *value };
                }
            }
            values
        }
    }
}

/// Two rows become one.
fn pairs(operator: Binary, left: &mut [f64], right: &[f64]) {
    fn each(left: &mut [f64], right: &[f64], of: impl Fn(f64, f64) -> f64) {
        for (a, b) in left.iter_mut().zip(right) {
            *a = of(*a, *b);
        }
    }
    fn compare(left: &mut [f64], right: &[f64], of: impl Fn(f64, f64) -> bool) {
        each(left, right, |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { truth(of(a, b)) });
    }
    match operator {
        Binary::Plus => each(left, right, |a, b| a + b),
        Binary::Minus => each(left, right, |a, b| a - b),
        Binary::Times => each(left, right, |a, b| a * b),
        Binary::Over => each(left, right, |a, b| if b == 0.0 { f64::NAN } else { a / b }),
        Binary::Equal => compare(left, right, |a, b| a == b),
        Binary::Unequal => compare(left, right, |a, b| a != b),
        Binary::Less => compare(left, right, |a, b| a < b),
        Binary::AtMost => compare(left, right, |a, b| a <= b),
        Binary::More => compare(left, right, |a, b| a > b),
        Binary::AtLeast => compare(left, right, |a, b| a >= b),
        // One that decides, decides beside null.
        Binary::And => each(left, right, |a, b| {
            if a == 0.0 || b == 0.0 {
                0.0
            } else if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                1.0
            }
        }),
        Binary::Or => each(left, right, |a, b| {
            let yes = |x: f64| !x.is_nan() && x != 0.0;
            if yes(a) || yes(b) {
                1.0
            } else if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                0.0
            }
        }),
        // Refused when it is bound.
        Binary::Like | Binary::AnyLike => left.fill(f64::NAN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<f64> {
        let formula = Formula::new(text, &["b1", "b2", "gap"]).unwrap();
        let bands = [[6.0], [2.0], [f64::NAN]];
        let found = formula.row(&|at: usize| bands[at].as_slice(), 1)[0];
        (!found.is_nan()).then_some(found)
    }

    #[test]
    fn numbers_and_null_follow_sql() {
        assert_eq!(value("(b1 - b2) / (b1 + b2)"), Some(0.5));
        assert_eq!(value("(B1 - b2) / (b2 - 2)"), None);
        assert_eq!(value("b1 + gap"), None);
        assert_eq!(value("coalesce(gap, b2, b1)"), Some(2.0));
        assert_eq!(value("gap is null"), Some(1.0));
        assert_eq!(value("gap > 1"), None);
        assert_eq!(value("gap > 1 and b1 < 0"), Some(0.0));
        assert_eq!(value("gap > 1 or b1 = 6"), Some(1.0));
        assert_eq!(value("not (b1 between 1 and 5)"), Some(1.0));
        assert_eq!(value("b1 in (1, 6)"), Some(1.0));
        assert_eq!(value("b1 in (1, gap)"), None);
        assert_eq!(value("abs(b2 - b1) * (b1 > 5)"), Some(4.0));
        assert_eq!(value("-b1 <> 6"), Some(1.0));
    }

    #[test]
    fn what_is_not_of_pixels_is_refused() {
        for text in ["b9", "b1 = 'a'", "$id", "lower(b1)", "b1 like 'a'", "b1 +", "abs(b1, b2)"] {
            assert!(Formula::new(text, &["b1", "b2"]).is_err(), "{text}");
        }
        let error = Formula::new("b4 / b1", &["b1", "b2"]).unwrap_err();
        assert!(error.message.contains("expected one of b1, b2"), "{error}");
    }
}
