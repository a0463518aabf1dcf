//! How sure a shortlist is, from the shape of its scores.
//!
//! A logistic model over four signs. Its coefficients were fitted on the development half of the evaluation
//! set (`tests/routing/`), which also says how well they do on the other half.

use super::Signs;

const BIAS: f32 = -3.0;
const FIT: f32 = 3.0;
const COVERED: f32 = 3.0;
const MARGIN: f32 = 0.5;
const KNOWN: f32 = 1.0;

/// Returns a confidence in 0..1.
pub(super) fn confidence(signs: &Signs) -> f32 {
    if signs.covered == 0.0 {
        return 0.0;
    }
    let sum = BIAS + FIT * signs.fit + COVERED * signs.covered + MARGIN * signs.margin + KNOWN * signs.known;
    1.0 / (1.0 + (-sum).exp())
}
