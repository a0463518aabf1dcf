//! Keys of those who move money.

use super::{Detector, token};
use crate::redact::shape::Class;

pub(super) const ALL: &[Detector] = &[
    token("stripe-key", &["sk_live_", "sk_test_", "rk_live_", "rk_test_"], Class::Alnum, 16..256),
    token("stripe-webhook-secret", &["whsec_"], Class::Base64, 24..90),
    token("square-token", &["sq0atp-", "sq0csp-"], Class::Dashed, 22..60),
    token("square-token", &["EAAA"], Class::Dashed, 60..61),
    token("shopify-token", &["shpat_", "shpca_", "shppa_", "shpss_"], Class::Hex, 32..33),
    token("plaid-token", &["access-sandbox-", "access-production-"], Class::Dashed, 36..37),
    token("razorpay-key", &["rzp_live_", "rzp_test_"], Class::Alnum, 14..15),
    token("paypal-token", &["access_token$production$", "access_token$sandbox$"], Class::Word, 30..90),
];
