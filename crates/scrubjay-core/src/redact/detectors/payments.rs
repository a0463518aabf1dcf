//! Keys of payment services and shops.

use super::{Detector, token};
use crate::redact::shape::ByteClass;

pub(super) const ALL: &[Detector] = &[
    token("stripe-key", &["sk_live_", "sk_test_", "rk_live_", "rk_test_"], ByteClass::Alnum, 16..256),
    token("stripe-webhook-secret", &["whsec_"], ByteClass::Base64, 24..90),
    token("square-token", &["sq0atp-", "sq0csp-"], ByteClass::Dashed, 22..60),
    token("square-token", &["EAAA"], ByteClass::Dashed, 60..61),
    token("shopify-token", &["shpat_", "shpca_", "shppa_", "shpss_"], ByteClass::Hex, 32..33),
    token("plaid-token", &["access-sandbox-", "access-production-"], ByteClass::Dashed, 36..37),
    token("razorpay-key", &["rzp_live_", "rzp_test_"], ByteClass::Alnum, 14..15),
    token("paypal-token", &["access_token$production$", "access_token$sandbox$"], ByteClass::Word, 30..90),
];
