//! The confidence of a shortlist, from the shape of its scores.
//!
//! A logistic model, fitted on the development half of the evaluation set (`tests/routing/`), with equal weight for
//! tasks that a tool serves and tasks that none does; the other half measures it. The margin to the second tool did not
//! help there, so it is shown but not used: two tools may both serve.

use super::ScoreShape;

const BIAS: f32 = -4.9;
const FIT: f32 = 2.9;
const COVERED: f32 = 5.4;
const KNOWN: f32 = 2.7;

/// Returns a confidence in 0..1.
pub(super) fn confidence(signs: &ScoreShape) -> f32 {
    if signs.covered == 0.0 {
        return 0.0;
    }
    let sum = BIAS + FIT * signs.fit + COVERED * signs.covered + KNOWN * signs.known;
    1.0 / (1.0 + (-sum).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_grows_with_every_sign() {
        let half = ScoreShape { fit: 0.4, covered: 0.4, margin: 0.5, known: 0.4 };
        let base = confidence(&half);
        for more in [
            ScoreShape { fit: 0.6, ..half },
            ScoreShape { covered: 0.6, ..half },
            ScoreShape { known: 0.6, ..half },
        ] {
            assert!(confidence(&more) > base);
        }
        let all = ScoreShape { fit: 1.0, covered: 1.0, margin: 1.0, known: 1.0 };
        assert!(confidence(&all) > 0.95 && confidence(&ScoreShape::default()) == 0.0);
    }
}
